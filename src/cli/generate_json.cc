#include "cli/generate_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace spyre::cli {
namespace {

void append_float(std::string& out, float value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{:.9g}", value);
  } else {
    out += "null";
  }
}

}  // namespace

void append_logprob(std::string& out, const runner::TokenLogprob& logprob) {
  fmt::format_to(std::back_inserter(out), R"({{"id":{},"logprob":)", logprob.token);
  append_float(out, logprob.logprob);
  out += R"(,"top":[)";
  bool first = true;
  for (const auto& [id, value] : logprob.top) {
    fmt::format_to(std::back_inserter(out), "{}[{},", first ? "" : ",", id);
    append_float(out, value);
    out += ']';
    first = false;
  }
  out += "]}";
}

std::string logprobs_json(const std::vector<runner::TokenLogprob>& logprobs, bool first_null) {
  std::string out = first_null ? "[null" : "[";
  for (const runner::TokenLogprob& logprob : logprobs) {
    if (out.size() > 1) out += ',';
    append_logprob(out, logprob);
  }
  return out += ']';
}

}  // namespace spyre::cli
