#include "engine/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "engine/flight_file.h"
#include "engine/test_rig.h"

namespace spyre::engine {
namespace {

using testing::Answers;
using testing::error_text;
using testing::greedy;
using ::testing::HasSubstr;
using testing::kVocab;
using testing::Rig;
using testing::RigOptions;
using testing::WorkerRig;

RigOptions small(int64_t flight_steps) {
  RigOptions o{.max_num_batched_tokens = 12, .num_blocks = 20, .max_num_seqs = 5};
  o.engine.flight_steps = flight_steps;
  return o;
}

// Requests that share prefixes, draw at random, are preempted and cancelled; |stop_at| steps of them.
Recording record(const RigOptions& o, int stop_at) {
  Rig rig(o);
  std::mt19937 random(7);
  for (int i = 0; i < stop_at; ++i) {
    if (i % 3 == 0) {
      Request request = greedy(1 + static_cast<int64_t>(random() % 30), 1 + static_cast<int64_t>(random() % 15), 5);
      request.id = std::to_string(i);
      request.n = 1 + static_cast<int32_t>(random() % 2);
      request.sampling.temperature = random() % 2 == 0 ? 0 : 1.5;
      if (random() % 2 == 0) request.sampling.seed = random();
      if (random() % 3 == 0) request.sampling.presence_penalty = 1;
      if (random() % 4 == 0) request.sampling.prompt_logprobs = 1;
      rig.engine->submit(request, {});
    }
    if (i % 17 == 5) rig.engine->cancel(std::to_string(i - 5));
    rig.engine->step();
  }
  EXPECT_GT(rig.engine->stats().preemptions, 0);
  EXPECT_GT(rig.engine->stats().prefix_cache_hits, 0);
  return recording_from(nlohmann::json::parse(to_json(rig.engine->recorder().recording()).dump()));
}

TEST(Replay, RunsTheLastStepsAgainBitForBit) {
  for (const int64_t kept : {400, 50, 7, 1}) {
    const Recording recording = record(small(kept), 300);
    ASSERT_EQ(std::ssize(recording.steps), std::min<int64_t>(kept, std::ssize(recording.steps)));
    EXPECT_EQ(recording.requests.empty(), kept == 400) << kept;
    WorkerRig fresh(small(kept));
    const ReplayReport report = replay(*fresh.worker, recording);
    EXPECT_FALSE(report.first) << kept << ": step " << report.first->step << " request " << report.first->request
                               << ": " << report.first->recorded << " / " << report.first->replayed;
    EXPECT_EQ(report.steps, std::ssize(recording.steps));
    EXPECT_GT(report.tokens, 0);
  }
}

TEST(Replay, NamesTheFirstDifference) {
  Recording recording = record(small(60), 200);
  for (size_t i = 20; i < recording.steps.size(); ++i) {
    RecordedStep changed = *recording.steps[i];
    if (changed.outputs.empty() || changed.outputs[0].tokens.empty()) continue;
    changed.outputs[0].tokens[0] ^= 1;
    recording.steps[i] = std::make_shared<const RecordedStep>(changed);
    WorkerRig fresh(small(60));
    const ReplayReport report = replay(*fresh.worker, recording);
    ASSERT_TRUE(report.first);
    EXPECT_EQ(report.first->step, changed.number);
    EXPECT_EQ(report.first->request, changed.step.num_scheduled_tokens[0].first);
    EXPECT_EQ(report.steps, static_cast<int64_t>(i) + 1);
    return;
  }
  FAIL() << "no token to change";
}

TEST(Replay, AFaultThatDoesNotComeAgainIsADifference) {
  Rig rig;
  rig.runner->before_forward = [](const runner::ForwardBatch&) { throw std::runtime_error("a cosmic ray"); };
  generate(*rig.engine, greedy(5, 2));
  WorkerRig fresh({});
  const ReplayReport report = replay(*fresh.worker, rig.engine->recorder().recording());
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->recorded, "a cosmic ray");
}

TEST(FlightFile, KeepsEveryFieldOfARequestAndNoText) {
  Rig rig;
  Request request = greedy(5, 3);
  request.id = "a name nobody should read";
  request.cache_salt = "salt nobody should read";
  request.sampling = {.temperature = 0.5,
                      .top_p = 0.75,
                      .top_k = 7,
                      .min_p = 0.125,
                      .seed = 1ull << 63,
                      .max_tokens = 3,
                      .ignore_eos = true,
                      .logprobs = 2,
                      .prompt_logprobs = 1,
                      .stop_token_ids = {9},
                      .presence_penalty = 0.5,
                      .frequency_penalty = 0.25,
                      .repetition_penalty = 1.5,
                      .logit_bias = {{3, 1.5f}},
                      .min_tokens = 1,
                      .eos_token_ids = {4},
                      .allowed_token_ids = std::vector<int32_t>{1, 2, 3, 4},
                      .bad_words = {{1, 2}}};
  rig.engine->submit(request, {});
  rig.run();
  const nlohmann::json json = to_json(rig.engine->recorder().recording());
  EXPECT_THAT(json.dump(), ::testing::Not(HasSubstr("nobody should read")));
  EXPECT_EQ(json["steps"][0]["new"][0]["sampling"].size(), 18u);  // all but |choice|
  EXPECT_EQ(to_json(recording_from(json)), json);
}

// "/steps/0/new/1/id" as messages have it: "steps[0].new[1].id".
std::string place_of(const std::string& pointer) {
  std::string place;
  std::istringstream parts(pointer.substr(1));
  for (std::string part; std::getline(parts, part, '/');) {
    const bool index = part.find_first_not_of("0123456789") == std::string::npos;
    place += index ? "[" + part + "]" : (place.empty() ? "" : ".") + part;
  }
  return place;
}

// Values that a careless reader narrows, wraps, cuts or takes for another type.
const nlohmann::json kAbsurd[] = {1e300, -1e300, UINT64_MAX, INT64_MIN, int64_t{1} << 40, -1, 0.5, true, "x", nullptr};

// Each value of |json| replaced by each absurd one: |again| either refuses it by place and value, or gives it back.
void expect_kept_or_refused(const nlohmann::json& json, const std::string& root,
                            const std::function<nlohmann::json(const nlohmann::json&)>& again) {
  int refused = 0, kept = 0;
  const nlohmann::json flat = json.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.size() > 2 && pointer.find_last_of("0123456789") == pointer.size() - 1 && !pointer.ends_with("/0") &&
        !pointer.ends_with("/1"))
      continue;  // of a list its first two
    for (const nlohmann::json& absurd : kAbsurd) {
      nlohmann::json changed = json;
      const nlohmann::json::json_pointer at(pointer);
      changed[at] = absurd;
      try {
        EXPECT_EQ(again(changed)[at], absurd) << pointer;
        ++kept;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << pointer;
        const std::string text = absurd.is_string() ? "'x'" : absurd.dump();
        EXPECT_THAT(error.what(), HasSubstr(root + place_of(pointer) + " is " + text + "; ")) << pointer;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, kept);
  EXPECT_GT(kept, 0);
}

TEST(FlightFile, NoNumberIsNarrowedOrTakenForAnotherType) {
  const nlohmann::json recorded = to_json(record(small(7), 300));
  ASSERT_FALSE(recorded["requests"].empty());
  ASSERT_FALSE(recorded["steps"][0]["cached"].empty());
  nlohmann::json whole = recorded;
  whole.erase("format");
  whole["requests"] = nlohmann::json::array({recorded["requests"][0]});  // several are sorted by id
  expect_kept_or_refused(whole, "", [](nlohmann::json changed) {
    changed["format"] = "spyre flight recording 1";
    return to_json(recording_from(changed));
  });
  const nlohmann::json sampling = {{"temperature", 0.5},
                                   {"top_p", 0.25},
                                   {"top_k", 7},
                                   {"min_p", 0.125},
                                   {"seed", 5},
                                   {"max_tokens", 3},
                                   {"ignore_eos", true},
                                   {"logprobs", 2},
                                   {"prompt_logprobs", 1},
                                   {"stop_token_ids", {9}},
                                   {"presence_penalty", 0.5},
                                   {"frequency_penalty", 0.25},
                                   {"repetition_penalty", 1.5},
                                   {"logit_bias", nlohmann::json::array({nlohmann::json::array({3, 1.5})})},
                                   {"min_tokens", 1},
                                   {"eos_token_ids", {4}},
                                   {"allowed_token_ids", {1, 2}},
                                   {"bad_words", nlohmann::json::array({nlohmann::json::array({1, 2})})},
                                   {"choice", 1}};
  expect_kept_or_refused(sampling, "requests[0].sampling.", [&](const nlohmann::json& changed) {
    nlohmann::json all = recorded;
    all["requests"][0]["sampling"] = changed;
    return to_json(recording_from(all))["requests"][0]["sampling"];
  });
  const nlohmann::json origin = {{"model", "/m"},      {"platform", "cpu"}, {"max_model_len", 9},
                                 {"block_size", 64},   {"max_num_seqs", 3}, {"max_num_batched_tokens", 7},
                                 {"num_kv_blocks", 5}, {"threads", 2},      {"token_buckets", {1, 8}},
                                 {"order", "pair"},    {"checked", true},   {"enforce_eager", true}};
  expect_kept_or_refused(origin, "origin.", [](const nlohmann::json& changed) {
    const platform::EngineConfig config = config_of(changed);
    nlohmann::json out = origin_of(config, *config.num_kv_blocks);
    out["model"] = config.model.string();  // it was made absolute
    return out;
  });
}

TEST(FlightFile, ConfigurationsComeBack) {
  const platform::EngineConfig config{.model = "/models/a",
                                      .platform = "cpu",
                                      .dtype = DType::kBF16,
                                      .max_model_len = 9,
                                      .block_size = 64,
                                      .max_num_seqs = 3,
                                      .max_num_batched_tokens = 77,
                                      .token_buckets = std::vector<int64_t>{1, 8},
                                      .order = "pair",
                                      .threads = 2};
  const platform::EngineConfig back = config_of(origin_of(config, 12));
  EXPECT_EQ(back.model, config.model);
  EXPECT_EQ(back.platform, "cpu");
  EXPECT_EQ(back.dtype, DType::kBF16);
  EXPECT_EQ(back.num_kv_blocks, 12);
  EXPECT_EQ(back.token_buckets, config.token_buckets);
  EXPECT_EQ(back.order, "pair");
  EXPECT_EQ(back.max_num_batched_tokens, 77);
}

TEST(FlightFile, WhatIsNoRecordingIsRefusedInOneLine) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "no_recording.json";
  for (const char* text :
       {"", "{", "[]", "{}", "null", R"({"format": "spyre flight recording 1"})",
        R"({"format": "spyre flight recording 1", "origin": {}, "requests": [{}], "steps": []})",
        R"({"format": "spyre flight recording 1", "origin": {"build": 0}, "requests": [], "steps": []})",
        R"({"format": "spyre flight recording 1", "origin": {}, "requests": [], "steps": [{"number": "x"}]})"}) {
    std::ofstream(file) << text;
    const std::string message = error_text(ErrorCode::kCorruptData, [&] { read_recording(file); });
    EXPECT_THAT(message, HasSubstr("this is no recording")) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  std::string deep = R"({"format": "spyre flight recording 1", "origin": )" + std::string(100000, '[');
  std::ofstream(file) << deep + std::string(100000, ']') + "}";
  EXPECT_THAT(error_text(ErrorCode::kCorruptData, [&] { read_recording(file); }), HasSubstr("nested deeper than 32"));
  std::filesystem::remove(file);
  EXPECT_THAT(error_text(ErrorCode::kUnavailable, [] { write_recording({}, "/no/such/folder/x"); }),
              HasSubstr("/no/such"));
}

}  // namespace
}  // namespace spyre::engine
