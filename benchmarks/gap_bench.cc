// The token gap of running streams while long prompts come in, with and without the bound: gap_bench MODEL [SECONDS...]
//
// Eight streams decode; then two long prompts arrive. A gap is the time between two tokens of one stream.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "platform/instance.h"
#include "platform/plugin.h"

namespace {

using namespace spyre;

constexpr int64_t kStreams = 8, kShort = 32, kLong = 1800;

engine::Request request(const std::string& id, int64_t prompt, int64_t tokens, int64_t vocab, std::mt19937& random) {
  engine::Request r{.id = id};
  for (int64_t i = 0; i < prompt; ++i) r.prompt_ids.push_back(static_cast<int32_t>(random() % vocab));
  r.sampling = {.temperature = 0, .max_tokens = tokens, .ignore_eos = true};
  return r;
}

void measure(platform::Instance& instance, double bound) {
  engine::Engine engine(*instance.worker,
                        {.num_blocks = instance.num_kv_blocks, .prefix_caching = false, .max_token_gap = bound});
  engine.measure_steps(1);
  std::mt19937 random(1);
  const int64_t vocab = instance.worker->vocab_size();
  std::vector<double> quiet, busy;
  int64_t prompts_left = 0;
  double first_token = 0, arrived = 0;
  for (int64_t i = 0; i < kStreams; ++i) {
    double last = -1;
    engine.submit(request(std::to_string(i), kShort, 150, vocab, random), [&, last](engine::OutputDelta&& d) mutable {
      if (d.token_ids.empty()) return;
      const double now = engine.now();
      if (last >= 0) (prompts_left > 0 ? busy : quiet).push_back(now - last);
      last = now;
    });
  }
  for (int64_t step = 0; engine.step(); ++step) {
    if (step != 40) continue;
    arrived = engine.now();
    for (const char* id : {"long 1", "long 2"}) {
      ++prompts_left;
      engine.submit(request(id, kLong, 1, vocab, random), [&](engine::OutputDelta&&) {
        --prompts_left;
        first_token = engine.now() - arrived;
      });
    }
  }
  std::sort(busy.begin(), busy.end());
  std::sort(quiet.begin(), quiet.end());
  const auto at = [](const std::vector<double>& v, double share) {
    return v.empty() ? 0 : 1e3 * v[static_cast<size_t>(share * static_cast<double>(v.size() - 1))];
  };
  fmt::print("{:>8} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>12.2f}\n",
             bound > 0 ? fmt::format("{:.0f}", bound * 1e3) : "none", at(quiet, 0.5), at(busy, 0.5), at(busy, 0.95),
             at(busy, 1), first_token);
}

int run(int argc, char** argv) {
  auto registry = platform::PlatformRegistry::discover(platform::PlatformRegistry::default_manifest_dirs());
  platform::Instance instance = platform::make_instance(
      registry.get("spyre"),
      {.model = argv[1], .max_model_len = 2048, .max_num_seqs = 16, .num_kv_blocks = 16 * 16 + 1});
  fmt::print("{} streams; then two prompts of {} tokens. Gaps between tokens in ms.\n", kStreams, kLong);
  fmt::print("{:>8} {:>10} {:>10} {:>10} {:>10} {:>12}\n", "bound", "before", "median", "p95", "largest", "prompts, s");
  std::vector<double> bounds;
  for (int i = 2; i < argc; ++i) bounds.push_back(std::atof(argv[i]));
  if (bounds.empty()) bounds = {0, 0.2, 0.1, 0.05};
  for (const double bound : bounds) measure(instance, bound);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc >= 2) return run(argc, argv);
    fmt::print(stderr, "gap_bench MODEL [SECONDS...]\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gap_bench: {}\n", error.what());
    return 1;
  }
}
