// What a traced step tells, on a device with golden data: the spans of both clocks, how they lie in one another, and
// that tracing changes no bit.
#include "plugins/spyre/worker/step_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/trace.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/worker/model_runner.h"

namespace spyre::worker {
namespace {

using namespace platform::testing;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using plugin::SpyrePlatform;

struct Traced {
  json events;
  std::vector<std::vector<float>> logits;
};

platform::EngineConfig config() {
  for (const auto& folder : golden_folders()) {
    if (folder.filename() != "llama_gqa64") continue;
    platform::EngineConfig config{.model = load_golden(folder).model, .dtype = DType::kBF16};
    config.max_model_len = 512;
    config.threads = 2;
    return config;
  }
  throw std::runtime_error("no golden model");
}

Traced traced_prefill(bool on) {
  const SpyrePlatform platform;
  RunnerHarness harness(platform, config());
  TraceRecorder trace;
  if (on) harness.runner().set_trace(&trace);
  Traced out;
  out.logits = harness.prefill({5, 17, 3, 99, 4, 8, 23, 42}, {8}, harness.blocks_for(8));
  harness.runner().set_trace(nullptr);
  out.events = json::parse(trace.json())["traceEvents"];
  return out;
}

// [process, track name] -> spans.
std::map<std::pair<int, std::string>, std::vector<json>> by_track(const json& events) {
  std::map<std::pair<int, int>, std::string> names;
  for (const json& e : events) {
    if (e["ph"] == "M" && e["name"] == "thread_name") names[{e["pid"], e["tid"]}] = e["args"]["name"];
  }
  std::map<std::pair<int, std::string>, std::vector<json>> spans;
  for (const json& e : events) {
    if (e["ph"] == "X") spans[{e["pid"], names.at({e["pid"], e["tid"]})}].push_back(e);
  }
  return spans;
}

TEST(StepTrace, ChangesNoBit) {
  const Traced on = traced_prefill(true), off = traced_prefill(false);
  ASSERT_EQ(on.logits.size(), off.logits.size());
  for (size_t i = 0; i < on.logits.size(); ++i) EXPECT_TRUE(equal_bits(on.logits[i], off.logits[i])) << i;
}

TEST(StepTrace, TellsProgramsOperationsAndTransfersOfAStep) {
  const Traced traced = traced_prefill(true);
  const auto spans = by_track(traced.events);
  const auto& host = spans.at({1, "programs"});
  const auto& card = spans.at({2, "programs"});
  ASSERT_EQ(host.size(), card.size());
  for (size_t i = 0; i < host.size(); ++i) EXPECT_EQ(host[i]["name"], card[i]["name"]);
  ASSERT_EQ(spans.at({2, "steps"}).size(), 1u);
  const json& step = spans.at({2, "steps"}).front();
  EXPECT_EQ(step["args"]["tokens"], 8);
  // On the card: transfers, then programs, then transfers, without gaps; operations fill their programs.
  double transfers = 0, programs = 0, operations = 0;
  for (const json& t : spans.at({2, "transfers"})) transfers += t["dur"].get<double>();
  for (const json& p : card) programs += p["dur"].get<double>();
  for (const json& o : spans.at({2, "device operations"})) operations += o["dur"].get<double>();
  EXPECT_NEAR(transfers + programs, step["dur"].get<double>(), 0.1);
  EXPECT_NEAR(operations, programs, 0.1);
  EXPECT_EQ(spans.at({2, "transfers"}).back()["name"], "to host: logits");
  EXPECT_EQ(spans.count({2, "attention"}), 0u);
}

TEST(StepTrace, AttentionHasTheOriginalsSpansWhereAsked) {
  setenv("SPYRE_ATTN_PROFILING", "1", 1);
  const Traced traced = traced_prefill(true);
  unsetenv("SPYRE_ATTN_PROFILING");
  const auto spans = by_track(traced.events);
  std::map<std::string, int> names;
  for (const json& s : spans.at({2, "attention"})) ++names[s["name"]];
  int attentions = 0;
  for (const json& o : spans.at({2, "device operations"})) attentions += o["name"] == "attention";
  EXPECT_GT(attentions, 0);
  for (const char* name : {"spyre_attn::forward", "spyre_attn::reshape_and_cache", "spyre_attn::online_softmax"}) {
    EXPECT_EQ(names[name], attentions) << name;
  }
}

}  // namespace
}  // namespace spyre::worker
