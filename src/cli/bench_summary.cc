#include "cli/bench_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

json percentiles(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  return {{"p50", percentile(values, 0.5)},
          {"p90", percentile(values, 0.9)},
          {"p99", percentile(values, 0.99)},
          {"max", percentile(values, 1)}};
}

double mean_gap(const LoadResult& r) {
  const size_t count = r.token_times.size();
  return count < 2 ? 0 : (r.token_times.back() - r.token_times.front()) / static_cast<double>(count - 1);
}

json lengths(const std::vector<double>& values) {
  json out = percentiles(values);
  out["mean"] = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return out;
}

// What is collected over the requests that were answered.
struct Totals {
  std::vector<double> first_token, gaps, end_to_end;
  double end = 0, begin = 0;
  int64_t prompt_tokens = 0, output_tokens = 0, failed = 0, good = 0;
  std::map<std::string, int64_t> errors;

  void add(const MixedRequest& request, const LoadResult& r, const GoodputLimits& limits) {
    end = std::max(end, r.end);
    begin = std::min(begin, r.start);
    if (!r.error.empty() || r.token_times.empty()) {
      ++failed;
      ++errors[r.error.empty() ? "no token came" : r.error];
      return;
    }
    first_token.push_back(r.token_times.front() - r.start);
    end_to_end.push_back(r.end - r.start);
    for (size_t i = 1; i < r.token_times.size(); ++i) {
      const double gap = r.token_times[i] - r.token_times[i - 1];
      if (gap > 0) gaps.push_back(gap);
    }
    prompt_tokens += std::ssize(request.prompt_ids);
    output_tokens += std::ssize(r.token_times);
    good += first_token.back() <= limits.first_token && mean_gap(r) <= limits.mean_gap;
  }
};

}  // namespace

double percentile(std::vector<double> values, double q) {
  SPYRE_CHECK(!values.empty() && q >= 0 && q <= 1);
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(q * count - 1e-9)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank - 1), values.end());
  return values[rank - 1];
}

json summarize(const std::vector<MixedRequest>& requests, const std::vector<LoadResult>& results,
               const GoodputLimits& limits) {
  Totals t;
  t.begin = results.empty() ? 0 : results.front().start;
  for (size_t i = 0; i < results.size(); ++i) t.add(requests[i], results[i], limits);
  const double seconds = t.end - t.begin;
  const auto rate = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; };
  const auto sent = std::ssize(results);
  return {{"requests", sent},
          {"failed", t.failed},
          {"errors", t.errors},
          {"seconds", seconds},
          {"prompt_tokens", t.prompt_tokens},
          {"output_tokens", t.output_tokens},
          {"requests_per_second", rate(sent - t.failed)},
          {"output_tokens_per_second", rate(t.output_tokens)},
          {"total_tokens_per_second", rate(t.output_tokens + t.prompt_tokens)},
          {"first_token", percentiles(t.first_token)},
          {"token_gap", percentiles(t.gaps)},
          {"end_to_end", percentiles(t.end_to_end)},
          {"goodput",
           {{"requests_per_second", rate(t.good)},
            {"share", sent > 0 ? static_cast<double>(t.good) / static_cast<double>(sent) : 0},
            {"max_first_token", limits.first_token},
            {"max_mean_gap", limits.mean_gap}}}};
}

json describe_lengths(const std::vector<MixedRequest>& requests) {
  std::vector<double> prompts, outputs;
  for (const MixedRequest& r : requests) {
    prompts.push_back(static_cast<double>(r.prompt_ids.size()));
    outputs.push_back(static_cast<double>(r.output_tokens));
  }
  return {{"prompt_tokens", lengths(prompts)}, {"output_tokens", lengths(outputs)}};
}

double metric(std::string_view page, std::string_view name) {
  double sum = 0;
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    const std::string_view line = page.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name)) continue;
    const size_t brace = line.starts_with(std::string(name) + "{") ? line.rfind('}') : name.size() - 1;
    if (brace == std::string_view::npos || brace + 1 >= line.size() || line[brace + 1] != ' ') continue;
    sum += std::strtod(std::string(line.substr(brace + 2)).c_str(), nullptr);
  }
  return sum;
}

json padding_between(std::string_view before, std::string_view after) {
  json out = json::object();
  for (const std::string part : {"body", "head"}) {
    const auto grown = [&](const std::string& what) {
      const std::string name = "spyre_" + what + "_rows_" + part + "_total";
      return metric(after, name) - metric(before, name);
    };
    const double live = grown("live"), padding = grown("padding");
    if (live <= 0) return nullptr;
    out[part] = {{"live", live}, {"padding", padding}, {"share", padding / (live + padding)}};
  }
  return out;
}

}  // namespace spyre::cli
