#include "server/openapi.h"

#include <fmt/format.h>

#include <cmath>

#include "base/build_id.h"
#include "server/api.h"

namespace spyre::server {
namespace {

Json schema_of(Kind kind) {
  switch (kind) {
    case Kind::kBool:
      return {{"type", "boolean"}};
    case Kind::kInteger:
      return {{"type", "integer"}};
    case Kind::kNumber:
      return {{"type", "number"}};
    case Kind::kString:
      return {{"type", "string"}};
    case Kind::kStrings:
      return {{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}};
    case Kind::kStringOrStrings:
      return {{"anyOf", Json::array({{{"type", "string"}, {"minLength", 1}}, schema_of(Kind::kStrings)})}};
    case Kind::kTokenIds:
      return {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}}}};
    case Kind::kPrompt:
      return {{"anyOf", Json::array({schema_of(Kind::kString),
                                     schema_of(Kind::kStrings),
                                     schema_of(Kind::kTokenIds),
                                     {{"type", "array"}, {"items", schema_of(Kind::kTokenIds)}}})}};
    case Kind::kBias:
      return {{"type", "object"}, {"additionalProperties", {{"type", "number"}}}};
    case Kind::kObject:
      return {{"type", "object"}};
    case Kind::kObjects:
      return {{"type", "array"}, {"items", {{"type", "object"}}}};
    case Kind::kAny:
      break;
  }
  return Json::object();
}

Json schema_of(const Field& field) {
  Json schema = schema_of(field.kind);
  if (std::isfinite(field.min)) schema["minimum"] = field.min;
  if (field.above_min) schema["exclusiveMinimum"] = true;  // OpenAPI 3.0's way
  if (std::isfinite(field.max)) schema["maximum"] = field.max;
  schema["nullable"] = true;
  schema["description"] = field.doc;
  return schema;
}

Json body_schema(std::span<const Field> fields) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : fields) {
    if (field.status != Status::kBuilt) continue;
    properties[std::string(field.name)] = schema_of(field);
    if (field.fallback == "required") required.push_back(field.name);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Json responses(bool has_body) {
  const auto error = [](const char* what) {
    return Json{{"description", what},
                {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  };
  Json out = {{"200", {{"description", "the answer"}}}, {"401", error("the API key is missing or wrong")}};
  if (has_body) out["400"] = error("a field is wrong: the message names it");
  out["404"] = error("no such path or model");
  out["405"] = error("the path does not have this method");
  if (has_body) {
    out["413"] = error("the body is too long");
    out["429"] = error("the queue is full");
    out["500"] = error("this request failed; the server lives");
  }
  out["503"] = error("not ready");
  return out;
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kBool:
      return "true, false";
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kString:
      return "string";
    case Kind::kStrings:
      return "strings";
    case Kind::kStringOrStrings:
      return "string(s)";
    case Kind::kTokenIds:
      return "token ids";
    case Kind::kPrompt:
      return "prompt";
    case Kind::kBias:
      return "object";
    case Kind::kObject:
      return "object";
    case Kind::kObjects:
      return "objects";
    case Kind::kAny:
      break;
  }
  return "any";
}

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::kContext:
      return "the context";
    case Bound::kLogprobs:
      return "`--max-logprobs`";
    case Bound::kChoices:
      return "`--max-choices`";
    case Bound::kPrompts:
      return "256 prompts";
    case Bound::kStops:
      return "64 strings";
    case Bound::kListEntries:
      return "65536 entries";
    case Bound::kNone:
      break;
  }
  return "";
}

std::string range_text(const Field& field) {
  constexpr double kShowable = 1e7;
  std::string out;
  if (std::isfinite(field.min) && field.min > -kShowable)
    out = fmt::format("{} {}", field.above_min ? "above" : "from", field.min);
  if (std::isfinite(field.max) && field.max < kShowable)
    out += fmt::format("{}to {}", out.empty() ? "" : " ", field.max);
  if (field.bound != Bound::kNone) out += fmt::format("{}to {}", out.empty() ? "" : " ", bound_name(field.bound));
  return out;
}

void add_table(std::string& out, std::span<const Field> fields) {
  out += "| field | type | range | default | |\n|---|---|---|---|---|\n";
  for (const Field& f : fields) {
    if (f.status == Status::kBuilt) {
      out += fmt::format("| `{}` | {} | {} | {} | {} |\n", f.name, type_name(f.kind), range_text(f), f.fallback, f.doc);
    }
  }
  std::string refused, ignored;
  for (const Field& f : fields) {
    if (f.status == Status::kNotBuilt) {
      refused += fmt::format("- `{}`: {}{}\n", f.name, f.doc,
                             f.off.empty() ? "" : fmt::format(" (taken: one of `{}`)", f.off));
    }
    if (f.status == Status::kIgnored) ignored += fmt::format("- `{}`: {}\n", f.name, f.doc);
  }
  if (!refused.empty()) out += "\nKnown, and refused by name because they are not built:\n\n" + refused;
  if (!ignored.empty()) out += "\nTaken and without effect:\n\n" + ignored;
}

}  // namespace

std::string openapi_json() {
  Json paths = Json::object();
  for (const RouteInfo& route : routes()) {
    Json operation;
    operation["summary"] = route.doc;
    if (route.path.find('{') != std::string_view::npos) {
      operation["parameters"] =
          Json::array({{{"name", "model"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    if (!route.fields.empty()) {
      operation["requestBody"] = {{"required", true},
                                  {"content", {{"application/json", {{"schema", body_schema(route.fields)}}}}}};
    }
    if (!route.open) operation["security"] = Json::array({Json{{"key", Json::array()}}, Json::object()});
    operation["responses"] = responses(!route.fields.empty());
    paths[std::string(route.path)][route.method == "GET" ? "get" : "post"] = std::move(operation);
  }
  const std::string_view build = build_id();
  Json error = {{"type", "object"},
                {"required", Json::array({"error"})},
                {"properties",
                 {{"error",
                   {{"type", "object"},
                    {"required", Json::array({"message", "type", "param", "code"})},
                    {"properties",
                     {{"message", {{"type", "string"}}},
                      {"type", {{"type", "string"}}},
                      {"param", {{"type", "string"}, {"nullable", true}}},
                      {"code", {{"type", "integer"}}}}}}}}}};
  Json document;
  document["openapi"] = "3.0.3";
  document["info"] = {{"title", "spyre-inference"}, {"version", build.substr(0, build.find('-'))}};
  document["paths"] = std::move(paths);
  document["components"] = {{"schemas", {{"Error", std::move(error)}}},
                            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}};
  return dump(document);
}

std::string api_page() {
  std::string out =
      "# The HTTP API\n\n"
      "Written from the tables that check the requests (`src/server/field_tables.cc`): `SPYRE_REGENERATE=1 ./run test "
      "ApiPage`\n"
      "writes it again. The shapes of answers are those of the OpenAI API, with vLLM's additions.\n\n"
      "An error is `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`: `code` is the HTTP status, `param` the "
      "field. 400: a field\n"
      "is wrong, 401: the API key, 404: no such path or model, 405: the method, 413: the body is too long, 429: the "
      "queue is full,\n"
      "500: this request failed and the server lives, 503: not ready. `null` means that a field is not given; a field "
      "that is in no\n"
      "table is ignored, with a line in the log.\n"
      "\nWhere a default is the model's, its generation_config.json gives it, if it does; `--generation-config vllm` "
      "leaves that file\n"
      "out.\n";
  for (const RouteInfo& route : routes()) {
    out += fmt::format("\n## {} {}\n\n{}{}\n", route.method, route.path, route.doc,
                       route.open ? " No key is asked for." : "");
    if (route.fields.empty()) continue;
    out += '\n';
    add_table(out, route.fields);
  }
  return out;
}

}  // namespace spyre::server
