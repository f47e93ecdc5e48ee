#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "base/build_id.h"
#include "base/error.h"
#include "cli/bench.h"
#include "engine/generate.h"
#include "platform/memory.h"

namespace spyre::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int64_t kFirstPromptTokens = 32;  // of the request that ends the start: a short question

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "model name" of /proc/cpuinfo; "" where there is none.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "";
}

// Bytes of a field of /proc/self/status ("VmRSS", "RssAnon"); 0 where there is none.
int64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field + ":")) continue;
    int64_t kib = 0;
    std::istringstream(line.substr(field.size() + 1)) >> kib;
    return kib * 1024;
  }
  return 0;
}

struct Sample {
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;
  double peak_before = 0, peak_after = 0;      // GFLOP/s; 0: no meters
  double stream_before = 0, stream_after = 0;  // GB/s
  double gap_seconds = 0;                      // between two decode steps, on average
};

class Bench {
 public:
  Bench(OpenModel& open, const BenchSizes& sizes)
      : open_(open),
        sizes_(sizes),
        // Every sample computes its prompt, and as fast as it can.
        engine_(*open.instance.worker,
                {.num_blocks = open.instance.num_kv_blocks, .prefix_caching = false, .max_token_gap = 3600}) {
    work_ = report("work");
    if (work_.is_null()) return;
    // The buffer is of the weights' size, unless it would push the model out of memory.
    stream_bytes_ = std::max<int64_t>(work_["weight_bytes_per_step"].get<int64_t>(), 1);
    const int64_t free = platform::available_memory();
    if (free > 0) stream_bytes_ = std::min(stream_bytes_, std::max<int64_t>(free / 2, 1));
  }

  json run() {
    json out = {{"model", open_.instance.config.model.string()}, {"build", build_id()}, {"machine", machine()}};
    out["start"] = start();
    out["memory"] = memory();
    if (stream_bytes_ > 0) out["meters"] = report("meters/all/" + std::to_string(stream_bytes_));
    std::vector<Sample> samples;
    for (int64_t i = 0; i < sizes_.repeat; ++i) samples.push_back(sample());
    out["prefill"] = prefill(samples);
    out["decode"] = decode(samples);
    if (sizes_.batch > 0) out["batch"] = batch();
    const json artifacts = report("artifacts");
    if (artifacts.is_object()) out["compiles_after_ready"] = artifacts.value("compiles_after_ready", json());
    return out;
  }

 private:
  json report(const std::string& topic) const { return open_.instance.worker->report(topic); }
  double peak() const { return stream_bytes_ > 0 ? report("meters/peak")["gflops"].get<double>() : 0; }
  double stream() const {
    return stream_bytes_ > 0 ? report("meters/stream/" + std::to_string(stream_bytes_))["gbps"].get<double>() : 0;
  }

  engine::Request request(int64_t prompt, int64_t output) {
    engine::Request r;
    const auto vocab = static_cast<uint64_t>(open_.instance.worker->vocab_size());
    for (int64_t i = 0; i < prompt; ++i) r.prompt_ids.push_back(static_cast<int32_t>(random_() % vocab));
    r.sampling = {.temperature = 0, .max_tokens = output, .ignore_eos = true};
    return r;
  }

  void check(const engine::GenerateResult& result) const {
    if (result.finish_reason == engine::FinishReason::kAbort) throw_error(ErrorCode::kCancelled, "interrupted");
    if (result.finish_reason == engine::FinishReason::kError) throw_error(ErrorCode::kUnsupported, "{}", result.error);
  }

  json machine() const {
    const platform::EngineConfig& config = open_.instance.config;
    json out = {{"cpu", cpu_name()}, {"platform", config.platform}};
    const json device = report("device");
    if (device.is_object()) out.update(device);
    out["dtype"] = to_string(*config.dtype);
    out["order"] = config.dtype == DType::kBF16 && device.is_object() ? device["bf16_order"] : json("sequential");
    out.erase("bf16_order");
    if (stream_bytes_ > 0) out["gemm"] = report("meters/peak")["gemm"];
    return out;
  }

  // The first request, and how long after the start of the program its token came.
  json start() {
    const int64_t prompt = std::min(kFirstPromptTokens, sizes_.prompt_tokens);
    double first_token = 0;
    check(engine::generate(
        engine_, request(prompt, 1), [&](const engine::OutputDelta&) { first_token = seconds_since_start(); },
        &interrupted));
    const runner::WarmUpReport& warm_up = open_.instance.warm_up;
    return {{"first_token_seconds", first_token},
            {"prompt_tokens", prompt},
            {"load_seconds", open_.load_seconds - warm_up.compile_seconds - warm_up.execute_seconds},
            {"compile_seconds", warm_up.compile_seconds},
            {"programs_compiled", warm_up.programs_compiled},
            {"attention_variants", warm_up.variants_recorded},
            {"execute_seconds", warm_up.execute_seconds},
            {"executed", stream_bytes_ > 0 ? "one token through every layer" : "nothing"}};
  }

  // After the first token, before the meters take memory of their own.
  json memory() const {
    const json m = report("memory");
    const auto bytes = [&](const char* ours, const char* reference) {
      return m.is_object() ? m.value(ours, m.value(reference, int64_t{0})) : int64_t{0};
    };
    const int64_t weights = bytes("host_weight_bytes", "weights_bytes"), kv = bytes("kv_bytes", "kv_cache_bytes");
    const int64_t anonymous = status_bytes("RssAnon");
    return {{"rss_bytes", status_bytes("VmRSS")},
            {"peak_rss_bytes", status_bytes("VmHWM")},
            {"rss_anon_bytes", anonymous},
            {"weight_bytes", weights},
            {"kv_bytes", kv},
            {"rest_bytes", anonymous - weights - kv}};
  }

  Sample sample() {
    Sample s;
    s.peak_before = peak();
    const Clock::time_point begin = Clock::now();
    Clock::time_point decode_begin, decode_end;
    int64_t tokens = 0;
    const engine::EngineStats before = engine_.stats();
    double meters = 0;  // seconds that they took between two steps
    check(engine::generate(
        engine_, request(sizes_.prompt_tokens, sizes_.output_tokens),
        [&](const engine::OutputDelta&) {
          decode_end = Clock::now();
          if (++tokens > 1) return;
          s.prefill_seconds = seconds(begin, decode_end);
          s.peak_after = peak();
          s.stream_before = stream();
          meters = seconds(decode_end, Clock::now());
          decode_begin = Clock::now();
        },
        &interrupted));
    s.stream_after = stream();
    const engine::EngineStats after = engine_.stats();
    s.gap_seconds = (after.step_gap.sum - before.step_gap.sum - meters) /
                    static_cast<double>(std::max<int64_t>(after.step_gap.total() - before.step_gap.total(), 1));
    s.decode_steps = tokens - 1;
    s.decode_seconds = seconds(decode_begin, decode_end);
    return s;
  }

  // FLOPs of the prompt: every weight with every token, one row of logits, each query with the keys up to its own.
  json prefill(const std::vector<Sample>& samples) const {
    const auto tokens = static_cast<double>(sizes_.prompt_tokens);
    double flops = 0;
    if (!work_.is_null()) {
      flops = work_["body_flops_per_token"].get<double>() * tokens + work_["head_flops_per_row"].get<double>() +
              work_["attention_flops_per_pair"].get<double>() * tokens * (tokens + 1) / 2;
    }
    std::vector<double> rates, ratios, limits;
    json list = json::array();
    for (const Sample& s : samples) {
      rates.push_back(tokens / s.prefill_seconds);
      list.push_back({{"tokens_per_second", rates.back()}});
      if (flops == 0) continue;
      const double limit = (s.peak_before + s.peak_after) / 2;
      limits.push_back(limit);
      ratios.push_back(flops / s.prefill_seconds * 1e-9 / limit);
      list.back().update({{"gflops_before", s.peak_before}, {"gflops_after", s.peak_after}, {"ratio", ratios.back()}});
    }
    json out = {
        {"tokens", sizes_.prompt_tokens}, {"tokens_per_second", median(rates)}, {"samples", list}, {"ratio", nullptr}};
    if (flops > 0) {
      out.update({{"flops", flops}, {"limit_gflops", median(limits)}, {"ratio", median(ratios)}});
      out["instruction"] = report("meters/peak")["instruction"];
    }
    return out;
  }

  // Bytes of a token: every weight once, its rows of the tables, and K and V of the positions so far, on average.
  json decode(const std::vector<Sample>& samples) const {
    double bytes = 0;
    if (!work_.is_null()) {
      const double context = static_cast<double>(sizes_.prompt_tokens) + static_cast<double>(sizes_.output_tokens) / 2;
      bytes = work_["weight_bytes_per_step"].get<double>() + work_["table_bytes_per_token"].get<double>() +
              work_["kv_bytes_per_token"].get<double>() * context;
    }
    std::vector<double> rates, ratios, limits, gaps;
    json list = json::array();
    for (const Sample& s : samples) {
      gaps.push_back(s.gap_seconds);
      rates.push_back(static_cast<double>(s.decode_steps) / s.decode_seconds);
      list.push_back({{"tokens_per_second", rates.back()}});
      if (bytes == 0) continue;
      const double limit = (s.stream_before + s.stream_after) / 2;
      limits.push_back(limit);
      ratios.push_back(rates.back() * bytes * 1e-9 / limit);
      list.back().update({{"gbps_before", s.stream_before}, {"gbps_after", s.stream_after}, {"ratio", ratios.back()}});
    }
    json out = {{"tokens", sizes_.output_tokens},
                {"tokens_per_second", median(rates)},
                {"samples", list},
                {"gap_seconds", median(gaps)},
                {"ratio", nullptr}};
    if (bytes > 0) {
      out.update({{"bytes_per_token", bytes},
                  {"stream_bytes", stream_bytes_},
                  {"limit_gbps", median(limits)},
                  {"limit_tokens_per_second", median(limits) * 1e9 / bytes},
                  {"ratio", median(ratios)}});
    }
    return out;
  }

  // Times of the steps in which every sequence decodes, ascending.
  std::vector<double> batch_steps() {
    std::vector<double> times;
    int64_t taking_part = 0;
    std::optional<std::string> error;
    for (int64_t i = 0; i < sizes_.batch; ++i) {
      engine::Request r = request(sizes_.prompt_tokens, sizes_.output_tokens);
      r.id = fmt::format("batch-{}", i);
      engine_.submit(std::move(r), [&](const engine::OutputDelta& delta) {
        taking_part += std::ssize(delta.token_ids);
        if (delta.finish_reason == engine::FinishReason::kError) error = delta.error;
      });
    }
    bool all_before = false;
    while (!interrupted && !error) {
      taking_part = 0;
      const Clock::time_point begin = Clock::now();
      if (!engine_.step()) break;
      // The step before gave every sequence a token too: nobody's prompt is in this one.
      const bool all = taking_part == sizes_.batch;
      if (all && all_before) times.push_back(seconds(begin, Clock::now()));
      all_before = all;
    }
    if (error) throw_error(ErrorCode::kUnsupported, "{}", *error);
    if (interrupted) {
      engine_.end_all(engine::FinishReason::kAbort);
      throw_error(ErrorCode::kCancelled, "interrupted");
    }
    if (times.empty()) {
      throw_error(ErrorCode::kInvalidArgument,
                  "--batch {}: the sequences never decode all at once; the KV cache, --max-num-seqs or --output-tokens "
                  "{} is too small",
                  sizes_.batch, sizes_.output_tokens);
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  json batch() {
    const double peak_before = peak(), stream_before = stream();
    const std::vector<double> times = batch_steps();
    const double step = median(times);
    json out = {{"sequences", sizes_.batch},
                {"steps", times.size()},
                {"step_seconds", step},
                {"fastest_step_seconds", times.front()},
                {"tokens_per_second", static_cast<double>(sizes_.batch) / step},
                {"ratio", nullptr}};
    if (work_.is_null()) return out;
    const auto rows = static_cast<double>(sizes_.batch);
    const double context = static_cast<double>(sizes_.prompt_tokens) + static_cast<double>(sizes_.output_tokens) / 2;
    const double bytes =
        work_["weight_bytes_per_step"].get<double>() +
        rows * (work_["table_bytes_per_token"].get<double>() + work_["kv_bytes_per_token"].get<double>() * context);
    const double flops =
        rows * (work_["body_flops_per_token"].get<double>() + work_["head_flops_per_row"].get<double>() +
                work_["attention_flops_per_pair"].get<double>() * context);
    const double memory = bytes * 1e-9 / ((stream_before + stream()) / 2);
    const double compute = flops * 1e-9 / ((peak_before + peak()) / 2);
    out.update({{"memory_seconds", memory}, {"compute_seconds", compute}, {"ratio", std::max(memory, compute) / step}});
    return out;
  }

  OpenModel& open_;
  const BenchSizes sizes_;
  engine::Engine engine_;
  std::mt19937 random_{1};
  json work_;
  int64_t stream_bytes_ = 0;  // 0: the platform has no meters
};

}  // namespace

json measure_model(OpenModel& open, const BenchSizes& sizes) {
  const int64_t limit = open.instance.worker->config().max_model_len;
  if (sizes.prompt_tokens + sizes.output_tokens > limit) {
    throw_error(ErrorCode::kInvalidArgument, "--prompt-tokens {} + --output-tokens {} are more than max_model_len {}",
                sizes.prompt_tokens, sizes.output_tokens, limit);
  }
  return Bench(open, sizes).run();
}

}  // namespace spyre::cli
