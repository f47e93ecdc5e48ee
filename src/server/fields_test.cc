#include "server/fields.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "server/api.h"
#include "server/api_error.h"
#include "server/openapi.h"

namespace spyre::server {
namespace {

using ::testing::HasSubstr;

const RequestLimits kLimits{.vocab_size = 100, .max_model_len = 64};

std::string refusal(const Json& body, std::span<const Field> table = completion_fields()) {
  try {
    check_fields(body, table, kLimits);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param().value_or("") + "|" + error.what();
  }
  return "";
}

TEST(Fields, TablesAreSound) {
  for (const auto table : {completion_fields(), chat_fields(), tokenize_fields(), detokenize_fields()}) {
    std::set<std::string_view> names;
    for (const Field& field : table) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name << " stands twice";
      EXPECT_FALSE(field.doc.empty()) << field.name;
      if (!field.off.empty()) {
        EXPECT_EQ(field.status, Status::kNotBuilt) << field.name;
        EXPECT_TRUE(Json::parse(field.off).is_array()) << field.name;
      }
    }
  }
}

// A value of the wrong type for each field of each table names the field.
TEST(Fields, EveryFieldOfEveryTableIsTypeChecked) {
  for (const auto table : {completion_fields(), chat_fields(), tokenize_fields(), detokenize_fields()}) {
    for (const Field& field : table) {
      if (field.status == Status::kIgnored || (field.kind == Kind::kAny && field.status == Status::kBuilt)) continue;
      const Json wrong = field.kind == Kind::kBool ? Json(1) : Json(true);
      const bool off =
          field.status == Status::kNotBuilt && !field.off.empty() && field.off.find("true") != std::string_view::npos;
      if (off) continue;
      EXPECT_THAT(refusal({{field.name, wrong}}, table),
                  HasSubstr(std::string(field.name) + "|" + std::string(field.name)));
      EXPECT_EQ(refusal({{field.name, nullptr}}, table), "") << field.name << ": null is absent";
    }
  }
}

TEST(Fields, RangesHaveTheirEnds) {
  for (const Field& field : completion_fields()) {
    if (field.status != Status::kBuilt || (field.kind != Kind::kNumber && field.kind != Kind::kInteger)) continue;
    const double step = field.kind == Kind::kInteger ? 1 : 1e-3;
    if (field.min > -1e6) {
      EXPECT_NE(refusal({{field.name, field.above_min ? field.min : field.min - step}}), "") << field.name;
      EXPECT_EQ(refusal({{field.name, field.above_min ? field.min + step : field.min}}), "") << field.name;
    }
    const double max =
        std::min(field.max, field.bound == Bound::kNone ? kUnbounded : static_cast<double>(kLimits.of(field.bound)));
    if (max < 1e9) {
      EXPECT_NE(refusal({{field.name, max + step}}), "") << field.name;
      EXPECT_EQ(refusal({{field.name, max}}), "") << field.name;
    }
  }
}

TEST(Fields, WhatIsNotBuiltIsRefusedByNameUnlessOff) {
  EXPECT_THAT(refusal({{"response_format", {{"type", "json_object"}}}}), HasSubstr("response_format"));
  EXPECT_EQ(refusal({{"response_format", {{"type", "text"}}}}), "");
  EXPECT_THAT(refusal({{"suffix", "x"}}), HasSubstr("suffix"));
  EXPECT_EQ(refusal({{"suffix", ""}}), "");
  EXPECT_THAT(refusal({{"priority", 1}}), HasSubstr("priority"));
  EXPECT_EQ(refusal({{"priority", 0}}), "");
}

TEST(Fields, UnknownAndIgnoredFieldsPass) {
  EXPECT_EQ(refusal({{"no_such_field", {1, 2}}, {"user", 5}, {"metadata", "x"}}), "");
}

TEST(Fields, WholeNumbersMayBeWrittenAsDoubles) {
  EXPECT_EQ(whole_number(5), 5);
  EXPECT_EQ(whole_number(-5.0), -5);
  EXPECT_EQ(whole_number(5.5), std::nullopt);
  EXPECT_EQ(whole_number(1e300), std::nullopt);
  EXPECT_EQ(whole_number(18446744073709551615u), std::nullopt);
  EXPECT_EQ(whole_number(true), std::nullopt);
  EXPECT_EQ(whole_number("5"), std::nullopt);
}

TEST(OpenApi, ListsEveryRouteAndNoFieldThatIsNotChecked) {
  const Json document = Json::parse(openapi_json());
  EXPECT_EQ(document["openapi"], "3.0.3");
  EXPECT_EQ(document["paths"].size(), routes().size());
  const Json& schema =
      document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["required"], Json({"prompt"}));
  EXPECT_EQ(schema["properties"]["temperature"]["minimum"], 0);
  EXPECT_EQ(schema["properties"]["top_p"]["exclusiveMinimum"], true);
  EXPECT_FALSE(schema["properties"].contains("suffix"));
}

TEST(ApiPage, IsUpToDate) {
  const std::filesystem::path path = std::filesystem::path(SPYRE_TEST_DATA) / "../../docs/api.md";
  if (std::getenv("SPYRE_REGENERATE") != nullptr) std::ofstream(path) << api_page();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), api_page())
      << "docs/api.md differs from the tables; SPYRE_REGENERATE=1 ./run test ApiPage writes it again";
}

}  // namespace
}  // namespace spyre::server
