#include "cli/report_page.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "report_page_files.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

// Inside a script element only "<" could end it or begin a comment.
std::string embedded(const json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string report_page(const std::string& name, const json& size, const json& run) {
  const std::pair<std::string_view, std::string> parts[] = {
      {"@STYLE@", std::string(resources::style_css())},
      {"@DATA@", embedded({{"name", name}, {"size", size}, {"run", run}})},
      {"@SCRIPT@",
       std::string(resources::charts_js()) + std::string(resources::graph_js()) + std::string(resources::report_js())}};
  std::string_view rest = resources::page_html();
  std::string page;
  for (const auto& [mark, text] : parts) {  // in the order of the page
    const size_t at = rest.find(mark);
    SPYRE_CHECK(at != std::string_view::npos, "{} is not in the page", mark);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + mark.size());
  }
  page += rest;
  return page;
}

}  // namespace spyre::cli
