#include "server/metrics.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <sstream>

namespace spyre::server {
namespace {

using ::testing::HasSubstr;

engine::EngineStats example() {
  engine::EngineStats stats;
  stats.running = 3;
  stats.blocks_used = 25;
  stats.blocks_total = 100;
  stats.finished = {7, 5, 2, 1};
  stats.time_to_first_token.observe(0.03);
  stats.time_to_first_token.observe(5000);
  stats.runner = {{"spyre_compiles_after_ready_total", 0},
                  {"spyre_something_bytes", 2.5},
                  {"spyre_live_rows_body_total", 70},
                  {"spyre_padding_rows_body_total", 58}};
  return stats;
}

// Every sample belongs to a family that was described before it, once; buckets do not fall.
TEST(Metrics, IsWellFormed) {
  std::istringstream page(metrics_page(example(), {}, "a\"b\\c\n"));
  std::map<std::string, std::string> types;
  std::set<std::string> samples;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("# TYPE ")) {
      std::istringstream words(line.substr(7));
      std::string name, type;
      words >> name >> type;
      EXPECT_TRUE(types.emplace(name, type).second) << name;
      continue;
    }
    if (line.starts_with('#')) continue;
    const std::string name = line.substr(0, line.find_first_of("{ "));
    std::string family = name;
    for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
      if (name.ends_with(suffix) && types.contains(name.substr(0, name.size() - suffix.size())))
        family = name.substr(0, name.size() - suffix.size());
    }
    EXPECT_TRUE(types.contains(family)) << line;
    EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    EXPECT_NO_THROW((void)std::stod(line.substr(line.rfind(' ') + 1))) << line;
  }
  EXPECT_GT(samples.size(), 100u);
}

TEST(Metrics, SaysWhatTheEngineCounted) {
  const std::string page = metrics_page(example(), {.connections = 4, .vanished = 9}, "m");
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"abort\"} 2\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.02\"} 0\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.04\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("spyre_compiles_after_ready_total{engine=\"0\",model_name=\"m\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("spyre_something_bytes{engine=\"0\",model_name=\"m\"} 2.5\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE spyre_live_rows_body_total counter\n"
                              "spyre_live_rows_body_total{engine=\"0\",model_name=\"m\"} 70\n"));
  EXPECT_THAT(page, HasSubstr("# HELP spyre_padding_rows_body_total Rows that the card computes"));
  EXPECT_THAT(page, HasSubstr("spyre_padding_rows_body_total{engine=\"0\",model_name=\"m\"} 58\n"));
  EXPECT_THAT(page, HasSubstr("spyre_http_connections 4\n"));
  EXPECT_THAT(page, HasSubstr("spyre_http_vanished_total 9\n"));
}

TEST(Metrics, AlwaysCountsCompilesAfterReady) {
  EXPECT_THAT(metrics_page({}, {}, "m"),
              HasSubstr("spyre_compiles_after_ready_total{engine=\"0\",model_name=\"m\"} 0\n"));
}

TEST(Metrics, LabelsAreEscaped) {
  EXPECT_EQ(label_value("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}

}  // namespace
}  // namespace spyre::server
