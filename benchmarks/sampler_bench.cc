// sampler_bench [--rows R] [--vocab V] [--threads N] [--logits FILE]: what it costs to sample a step's rows, in
// microseconds per row of one thread and in milliseconds per step of all threads, through the functions that the worker
// calls. Without a file of rows of fp32 logits they are normal (sigma 2.5) with forty likely tokens, which is flatter
// than what a language model gives: top-p keeps thousands.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/team.h"
#include "runner/sampler.h"

namespace {

using namespace spyre;
using namespace spyre::runner;

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> cases() {
  SamplingParams greedy{.temperature = 0}, top_k{.top_k = 50, .seed = 1}, top_p{.top_p = 0.9, .seed = 1};
  SamplingParams logprobs = top_p, cooler = top_p, both = top_k, penalties = greedy, flat = top_p;
  logprobs.logprobs = cooler.logprobs = 5;
  cooler.temperature = 0.7;
  both.top_p = 0.9;
  penalties.presence_penalty = 0.5;
  penalties.frequency_penalty = 0.5;
  penalties.repetition_penalty = 1.1;
  flat.temperature = 5;
  return {{"greedy", greedy},
          {"top-k 50", top_k},
          {"top-k 50, top-p 0.9", both},
          {"top-p 0.9", top_p},
          {"top-p 0.9, logprobs 5", logprobs},
          {"the same at temperature 0.7", cooler},
          {"min-p 0.05", {.min_p = 0.05, .seed = 1}},
          {"temperature 1", {.seed = 1}},
          {"temperature 5, top-p 0.9", flat},
          {"greedy, three penalties", penalties}};
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Lane {
  Sampler sampler;
};

void sample(Lane& lane, RequestState& state, std::span<const float> logits) {
  const int32_t token = lane.sampler.sample(state, logits, {});
  if (!state.sampling.logprobs) return;
  if (lane.sampler.logprob(logits, token, *state.sampling.logprobs).token != token) std::abort();
}

// The best of a few runs: CPU seconds of one thread that samples all rows, and wall seconds of the team.
struct Cost {
  double one = 1e9, all = 1e9;
};

Cost measure(ThreadTeam& team, std::vector<Lane>& lanes, std::vector<RequestState>& states,
             const std::vector<float>& logits, int64_t vocab) {
  const auto row = [&](size_t i) { return std::span(logits).subspan(i * vocab, vocab); };
  Cost cost;
  TeamLease lease(team);
  for (int run = 0; run < 15; ++run) {
    double start = thread_seconds();
    for (size_t i = 0; i < states.size(); ++i) sample(lanes[0], states[i], row(i));
    cost.one = std::min(cost.one, thread_seconds() - start);

    std::atomic<size_t> next = 0;
    start = seconds();
    lease->run([&](int index, int) {
      for (size_t i = next++; i < states.size(); i = next++) sample(lanes[index], states[i], row(i));
    });
    cost.all = std::min(cost.all, seconds() - start);
  }
  return cost;
}

std::vector<float> random_logits(int64_t rows, int64_t vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> logits(rows * vocab);
  for (float& x : logits) x = normal(random);
  for (int64_t r = 0; r < rows; ++r) {
    for (int i = 0; i < 40; ++i) logits[r * vocab + random() % vocab] += 9.0f + normal(random);
  }
  return logits;
}

// The rows of a file of fp32 words, repeated.
std::vector<float> logits_of(const std::string& file, int64_t rows, int64_t vocab) {
  std::vector<float> logits(rows * vocab);
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
  const int64_t had = in.gcount() / static_cast<int64_t>(sizeof(float)) / vocab * vocab;
  if (had == 0) std::abort();
  for (int64_t i = had; i < std::ssize(logits); ++i) logits[i] = logits[i - had];
  return logits;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rows = 64, vocab = 49152;
  int threads = usable_cpus();
  std::string file;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--rows") rows = std::atoll(argv[i + 1]);
    if (flag == "--vocab") vocab = std::atoll(argv[i + 1]);
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
    if (flag == "--logits") file = argv[i + 1];
  }
  std::mt19937 random(1);
  const std::vector<float> logits = file.empty() ? random_logits(rows, vocab) : logits_of(file, rows, vocab);

  ThreadTeam team(threads);
  std::vector<Lane> lanes(threads);
  std::printf("%lld rows of %lld logits, %d threads, kernels for %s\n", static_cast<long long>(rows),
              static_cast<long long>(vocab), threads, to_string(CpuFeatures::capped_by_environment()).c_str());
  std::printf("%-28s %14s %14s\n", "", "us/row, 1 thr", "ms/step, all");
  for (const auto& [name, params] : cases()) {
    std::vector<RequestState> states(rows);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> prompt(1000), output(200);
      for (auto* part : {&prompt, &output}) {
        for (int32_t& t : *part) t = static_cast<int32_t>(random() % vocab);
      }
      states[r].id = std::to_string(r);
      states[r].sampling = params;
      states[r].edits = LogitsEdits(params, prompt, output, vocab);
      states[r].tokens = prompt;
      states[r].tokens.insert(states[r].tokens.end(), output.begin(), output.end());
      states[r].prompt_length = 1000;
    }
    const Cost cost = measure(team, lanes, states, logits, vocab);
    std::printf("%-28s %14.1f %14.2f\n", name, cost.one * 1e6 / static_cast<double>(rows), cost.all * 1e3);
  }
}
