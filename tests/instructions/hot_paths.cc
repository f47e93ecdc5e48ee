// hot_paths PATH: runs one hot path on fixed inputs and one thread, for callgrind to count
// (tests/instructions/count.py). Without an argument it lists them. What is counted is what happens inside
// spyre_counted(): the path is warm by then.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/platform.h"
#include "runner/sampler.h"
#include "text/tokenizer.h"

namespace {
std::function<void()> counted;
}

// callgrind collects while this function is on the stack; it knows it by name.
extern "C" __attribute__((noinline, visibility("default"))) void spyre_counted() {
  counted();
  asm volatile("" ::: "memory");  // no tail call
}

namespace {

using namespace spyre;

std::vector<int32_t> tokens(int64_t count) {
  std::mt19937 random(5);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % 256));
  return ids;
}

// A step of `rows` tokens behind a context of 100, of a small model with heads of 64.
void forward(DType dtype, int64_t rows) {
  platform::EngineConfig config{.model = std::filesystem::path(SPYRE_GOLDEN_DATA) / "llama_gqa64", .dtype = dtype};
  config.max_model_len = 256;
  config.threads = 1;
  static const plugin::SpyrePlatform platform;
  static std::unique_ptr<platform::testing::RunnerHarness> harness;
  harness = std::make_unique<platform::testing::RunnerHarness>(platform, config);
  const std::vector<int32_t> ids = tokens(100 + rows), blocks = harness->blocks_for(std::ssize(ids));
  harness->run({{.tokens = {ids.begin(), ids.begin() + 100}, .start = 0, .blocks = blocks}});
  const std::vector<platform::testing::Piece> step = {
      {.tokens = {ids.begin() + 100, ids.end()}, .start = 100, .blocks = blocks}};
  counted = [step] { harness->run(step); };
}

void sample_row() {
  static runner::Sampler sampler;
  static std::vector<float> logits(49152);
  std::mt19937 random(3);
  for (float& x : logits) x = static_cast<float>(random() % 100000) * 1e-4f;
  static runner::RequestState state;
  state.sampling = {.top_p = 0.9, .top_k = 50, .seed = 1};
  counted = [] { (void)sampler.sample(state, logits, {}); };
}

// A step of 16 running sequences that decode, and its books.
void schedule_step() {
  static engine::KvCacheManager cache(400, 16);
  static engine::StepTimeModel time;
  static engine::Scheduler scheduler({.max_num_batched_tokens = 512, .max_num_seqs = 16}, cache, time);
  static std::vector<std::unique_ptr<engine::Sequence>> sequences;
  for (int i = 0; i < 16; ++i) {
    auto s = std::make_unique<engine::Sequence>();
    s->id = std::to_string(i);
    s->tokens = tokens(20 + i);
    s->prompt_length = s->length();
    s->arrival = {static_cast<uint64_t>(i), 0};
    scheduler.add(*s);
    sequences.push_back(std::move(s));
  }
  counted = [] {
    const engine::ScheduledStep step = scheduler.schedule(0);
    for (const engine::ScheduledStep::Part& part : step.parts) {
      scheduler.advance(part);
      if (part.sequence->left() == 0) part.sequence->tokens.push_back(5);
    }
  };
}

void encode_text() {
  static const auto tokenizer = text::Tokenizer::from_json([] {
    std::string json(1 << 20, '\0');
    std::FILE* file = std::fopen(SPYRE_TEST_DATA "/tiny_tokenizer.json", "rb");
    json.resize(file != nullptr ? std::fread(json.data(), 1, json.size(), file) : 0);
    if (file != nullptr) std::fclose(file);
    return json;
  }());
  static std::string words;
  for (int i = 0; i < 40; ++i)
    words += "The quick brown fox, number " + std::to_string(i) + ", jumps over the lazy dog. ";
  counted = [] { (void)tokenizer.encode(words, {}); };
}

struct Path {
  const char* name;
  std::function<void()> prepare;
};

const Path kPaths[] = {{"decode_f16", [] { forward(DType::kF16, 1); }},
                       {"decode_bf16", [] { forward(DType::kBF16, 1); }},
                       {"prefill_64_f16", [] { forward(DType::kF16, 64); }},
                       {"prefill_64_bf16", [] { forward(DType::kBF16, 64); }},
                       {"sample_row", sample_row},
                       {"schedule_16_decodes", schedule_step},
                       {"encode_text", encode_text}};

}  // namespace

int main(int argc, char** argv) {
  for (const Path& path : kPaths) {
    if (argc < 2) {
      std::puts(path.name);
    } else if (std::strcmp(argv[1], path.name) == 0) {
      path.prepare();
      counted();  // warm
      counted();
      spyre_counted();
      counted = {};
      std::fflush(nullptr);
      std::quick_exit(0);  // nothing behind it is of interest
    }
  }
  return argc < 2 ? 0 : 2;
}
