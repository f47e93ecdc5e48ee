#include "cli/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spyre::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(ReportPage, EmbedsItsData) {
  const json size = {{"fits", true}, {"numbers", {1, 2.5, -3}}}, run = {{"steps", 7}};
  const json data = json::parse(data_of(report_page("a model", size, run)));
  EXPECT_EQ(data["name"], "a model");
  EXPECT_EQ(data["size"], size);
  EXPECT_EQ(data["run"], run);
}

TEST(ReportPage, NamesCannotEndTheScript) {
  const std::string name = "</script><script>alert(1)</script><!-- @SCRIPT@ @STYLE@";
  const std::string page = report_page(name, {{"programs", {name}}}, nullptr);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  const json data = json::parse(data_of(page));
  EXPECT_EQ(data["name"], name);
  EXPECT_EQ(data["size"]["programs"][0], name);
}

TEST(ReportPage, NeedsNothingFromElsewhere) {
  const std::string page = report_page("m", json::object(), nullptr);
  for (const char* outside : {"src=", "url(", "@import", "fetch(", "<link"}) EXPECT_THAT(page, Not(HasSubstr(outside)));
  size_t places = 0;  // an address names a vocabulary, never a place to load from
  for (size_t at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1)) {
    EXPECT_EQ(page.compare(at, 26, "http://www.w3.org/2000/svg"), 0);
    ++places;
  }
  EXPECT_EQ(places, 1u);
  EXPECT_THAT(page, Not(HasSubstr("@DATA@")));
}

}  // namespace
}  // namespace spyre::cli
