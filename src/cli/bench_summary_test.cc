#include "cli/bench_summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

MixedRequest request(size_t prompt, int64_t output) {
  return {.prompt_ids = std::vector<int32_t>(prompt, 20), .output_tokens = output};
}

TEST(Percentile, IsTheNearestRank) {
  const std::vector<double> values{5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 0.2), 1);
  EXPECT_EQ(percentile(values, 0.21), 2);
  EXPECT_EQ(percentile(values, 0.5), 3);
  EXPECT_EQ(percentile(values, 0.9), 5);
  EXPECT_EQ(percentile(values, 1), 5);
  EXPECT_EQ(percentile({7}, 0.5), 7);
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 0.99), 99);  // and not 100, which 0.99 * 100 rounded up in doubles could give
}

TEST(Summary, OfAnsweredAndFailedRequests) {
  const std::vector<MixedRequest> requests{request(10, 3), request(20, 2), request(30, 1)};
  std::vector<LoadResult> results(3);
  results[0] = {.start = 1, .token_times = {1.5, 1.6, 1.8}, .end = 2};
  results[1] = {.start = 2, .token_times = {4.0, 4.0}, .end = 5};  // both in one event
  results[2] = {.start = 2, .end = 3, .error = "HTTP 429: full"};
  const json s = summarize(requests, results, {.first_token = 1.0, .mean_gap = 0.2});
  EXPECT_EQ(s["requests"], 3);
  EXPECT_EQ(s["failed"], 1);
  EXPECT_EQ(s["errors"]["HTTP 429: full"], 1);
  EXPECT_DOUBLE_EQ(s["seconds"], 4);  // from 1 to 5
  EXPECT_EQ(s["prompt_tokens"], 30);
  EXPECT_EQ(s["output_tokens"], 5);
  EXPECT_DOUBLE_EQ(s["output_tokens_per_second"], 5.0 / 4);
  EXPECT_DOUBLE_EQ(s["total_tokens_per_second"], 35.0 / 4);
  EXPECT_DOUBLE_EQ(s["first_token"]["p50"], 0.5);
  EXPECT_DOUBLE_EQ(s["first_token"]["max"], 2);
  EXPECT_NEAR(s["token_gap"]["max"], 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(s["end_to_end"]["max"], 3);
  EXPECT_DOUBLE_EQ(s["goodput"]["share"], 1.0 / 3);  // the second waits too long for its first token
  EXPECT_DOUBLE_EQ(s["goodput"]["requests_per_second"], 0.25);
}

TEST(Summary, GapsCountAgainstGoodput) {
  const std::vector<LoadResult> results{{.start = 0, .token_times = {0.1, 0.5}, .end = 1}};
  EXPECT_EQ(summarize({request(1, 2)}, results, {.first_token = 1, .mean_gap = 0.41})["goodput"]["share"], 1);
  EXPECT_EQ(summarize({request(1, 2)}, results, {.first_token = 1, .mean_gap = 0.39})["goodput"]["share"], 0);
}

TEST(Summary, OfNothingButFailures) {
  const std::vector<LoadResult> results{{.error = "no"}};
  const json s = summarize({request(1, 1)}, results, {});
  EXPECT_TRUE(s["first_token"].is_null());
  EXPECT_EQ(s["output_tokens_per_second"], 0);
  EXPECT_EQ(s["goodput"]["share"], 0);
}

TEST(Lengths, AreDescribed) {
  const json l = describe_lengths({request(10, 1), request(30, 5)});
  EXPECT_EQ(l["prompt_tokens"]["mean"], 20);
  EXPECT_EQ(l["prompt_tokens"]["max"], 30);
  EXPECT_EQ(l["output_tokens"]["p50"], 1);
}

TEST(Metric, IsReadWhateverItsLabels) {
  const char* page =
      "# HELP rows_total Rows\n# TYPE rows_total counter\nrows_total{model=\"a } b\"} 12\nrows_total{model=\"c\"} 3\n"
      "rows_total_more 100\nplain 7.5\n";
  EXPECT_EQ(metric(page, "rows_total"), 15);
  EXPECT_EQ(metric(page, "plain"), 7.5);
  EXPECT_EQ(metric(page, "rows"), 0);
  EXPECT_EQ(metric("", "rows"), 0);
}

TEST(Padding, IsWhatWasAddedMeanwhile) {
  const auto page = [](int live, int padding, int head) {
    return fmt::format(
        "spyre_live_rows_body_total {}\nspyre_padding_rows_body_total {}\nspyre_live_rows_head_total {}\n"
        "spyre_padding_rows_head_total 0\n",
        live, padding, head);
  };
  const json p = padding_between(page(100, 50, 10), page(190, 60, 20));
  EXPECT_EQ(p["body"]["live"], 90);
  EXPECT_EQ(p["body"]["padding"], 10);
  EXPECT_DOUBLE_EQ(p["body"]["share"], 0.1);
  EXPECT_EQ(p["head"]["share"], 0);
  EXPECT_TRUE(padding_between("", "").is_null());
}

TEST(Url, IsTakenApart) {
  const LoadTarget plain = parse_url("http://localhost");
  EXPECT_EQ(plain.host + "|" + plain.port + "|" + plain.prefix, "localhost|80|");
  const LoadTarget full = parse_url("http://10.0.0.1:8000/api/");
  EXPECT_EQ(full.host + "|" + full.port + "|" + full.prefix, "10.0.0.1|8000|/api");
  const LoadTarget v6 = parse_url("http://[::1]:8000");
  EXPECT_EQ(v6.host + "|" + v6.port, "::1|8000");
  for (const char* bad : {"", "localhost:8000", "https://a", "http://", "http://:80", "http://a:", "http://a:x",
                          "http://a b", "http://a:123456", "http://a\r\nX: y"}) {
    EXPECT_THROW(parse_url(bad), Error) << bad;
  }
}

TEST(Event, TokensAreCountedByIdsOrByText) {
  EXPECT_EQ(tokens_of_event(R"({"choices":[{"text":"ab","token_ids":[1,2]}]})"), 2);
  EXPECT_EQ(tokens_of_event(R"({"choices":[{"text":"","token_ids":[1]}]})"), 1);  // half a character
  EXPECT_EQ(tokens_of_event(R"({"choices":[{"text":"ab"}]})"), 1);
  EXPECT_EQ(tokens_of_event(R"({"choices":[{"text":""}]})"), 0);
  EXPECT_EQ(tokens_of_event(R"({"choices":[],"usage":{"completion_tokens":3}})"), 0);
  EXPECT_THROW(tokens_of_event(R"({"error":{"message":"no"}})"), Error);
  EXPECT_THROW(tokens_of_event("{"), Error);
}

}  // namespace
}  // namespace spyre::cli
