#include "server/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

namespace spyre::server {
namespace {

using engine::EngineStats;
using engine::Histogram;

struct Number {
  const char* name;
  const char* type;  // counter or gauge
  const char* help;
  double (*value)(const EngineStats&);
};

constexpr Number kNumbers[] = {
    {"vllm:num_requests_running", "gauge", "Requests in the running batch",
     [](const EngineStats& s) { return double(s.running); }},
    {"vllm:num_requests_waiting", "gauge", "Requests that wait for a place",
     [](const EngineStats& s) { return double(s.waiting); }},
    {"vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1",
     [](const EngineStats& s) { return s.blocks_total > 0 ? double(s.blocks_used) / double(s.blocks_total) : 0; }},
    {"vllm:num_preemptions_total", "counter", "Requests set back to make room",
     [](const EngineStats& s) { return double(s.preemptions); }},
    {"vllm:prompt_tokens_total", "counter", "Prompt tokens, computed or found in the prefix cache",
     [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {"vllm:generation_tokens_total", "counter", "Tokens generated",
     [](const EngineStats& s) { return double(s.generation_tokens); }},
    {"vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache",
     [](const EngineStats& s) { return double(s.prefix_cache_queries); }},
    {"vllm:prefix_cache_hits_total", "counter", "Tokens found in the prefix cache",
     [](const EngineStats& s) { return double(s.prefix_cache_hits); }},
    {"spyre_steps_total", "counter", "Steps of the engine", [](const EngineStats& s) { return double(s.steps); }},
    {"spyre_failed_steps_total", "counter", "Steps that failed, and with them their requests",
     [](const EngineStats& s) { return double(s.failed_steps); }},
    {"spyre_forward_seconds_total", "counter", "Time of steps in the model",
     [](const EngineStats& s) { return s.forward_seconds; }},
    {"spyre_sampling_seconds_total", "counter", "Time of steps in the sampler",
     [](const EngineStats& s) { return s.sampling_seconds; }},
};

struct Buckets {
  const char* name;
  const char* help;
  const Histogram EngineStats::* histogram;
};

constexpr Buckets kHistograms[] = {
    {"vllm:time_to_first_token_seconds", "From arrival to the first token", &EngineStats::time_to_first_token},
    {"vllm:inter_token_latency_seconds", "Between two tokens of a choice", &EngineStats::inter_token},
    {"vllm:e2e_request_latency_seconds", "From arrival to the last token", &EngineStats::e2e_latency},
    {"vllm:request_queue_time_seconds", "Waiting for a place", &EngineStats::queue_time},
    {"vllm:request_prefill_time_seconds", "From the first step to the first token", &EngineStats::prefill_time},
    {"vllm:request_decode_time_seconds", "From the first token to the last", &EngineStats::decode_time},
    {"vllm:iteration_tokens_total", "Tokens per step", &EngineStats::step_tokens},
    {"spyre_step_gap_seconds", "Between two steps, when there is something to do", &EngineStats::step_gap},
    {"vllm:request_prompt_tokens", "Prompt tokens per choice", &EngineStats::request_prompt_tokens},
    {"vllm:request_generation_tokens", "Generated tokens per choice", &EngineStats::request_generation_tokens},
};

// What the runner tells of itself, by name; others it tells are printed without a description.
struct Described {
  std::string_view name;
  const char* help;
};
constexpr Described kRunner[] = {
    {"spyre_compiles_after_ready_total", "Programs compiled since warm-up: stays 0"},
    {"spyre_transfers_to_device_total", "Transfers to the device"},
    {"spyre_transfers_to_host_total", "Transfers from the device"},
    {"spyre_transfer_card_bytes_to_device_total", "Bytes to the device on the card's extents, padding included"},
    {"spyre_transfer_card_bytes_to_host_total", "Bytes from the device on the card's extents, padding included"},
    {"spyre_transfer_padding_bytes_to_device_total", "Bytes of these to the device that were padding"},
    {"spyre_transfer_padding_bytes_to_host_total", "Bytes of these from the device that were padding"},
    {"spyre_live_rows_body_total", "Rows of tokens that steps computed"},
    {"spyre_padding_rows_body_total", "Rows that the card computes beside them to fill a bucket"},
    {"spyre_live_rows_head_total", "Rows that logits were computed for"},
    {"spyre_padding_rows_head_total", "Rows that the card computes beside them to fill a bucket"},
};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < 1e15) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

class Page {
 public:
  explicit Page(std::string_view model) : labels_(fmt::format("engine=\"0\",model_name=\"{}\"", label_value(model))) {}

  void head(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void line(std::string_view name, double value, std::string_view more = "") {
    fmt::format_to(std::back_inserter(text_), "{}{{{}{}{}}} {}\n", name, labels_, more.empty() ? "" : ",", more,
                   number(value));
  }
  void bare(std::string_view name, std::string_view type, std::string_view help, double value) {
    head(name, type, help);
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name, number(value));
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    head(name, "histogram", help);
    int64_t sum = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      sum += histogram.counts[i];
      const std::string bound = i < histogram.bounds.size() ? fmt::format("{}", histogram.bounds[i]) : "+Inf";
      line(std::string(name) + "_bucket", static_cast<double>(sum), fmt::format("le=\"{}\"", bound));
    }
    line(std::string(name) + "_sum", histogram.sum);
    line(std::string(name) + "_count", static_cast<double>(sum));
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string labels_;
  std::string text_;
};

std::string_view type_of(std::string_view name) {
  return name.ends_with("_total") ? "counter" : "gauge";
}

void add_runner(Page& page, const EngineStats& stats) {
  const auto described = [](std::string_view name) {
    return std::find_if(std::begin(kRunner), std::end(kRunner), [&](const Described& d) { return d.name == name; });
  };
  bool compiles = false;
  for (const auto& [name, value] : stats.runner) {
    const auto it = described(name);
    page.head(name, type_of(name), it == std::end(kRunner) ? "Told by the model runner" : it->help);
    page.line(name, value);
    compiles = compiles || name == kRunner[0].name;
  }
  if (compiles) return;
  page.head(kRunner[0].name, type_of(kRunner[0].name), kRunner[0].help);  // a runner that compiles nothing
  page.line(kRunner[0].name, 0);
}

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string metrics_page(const EngineStats& stats, const HttpCounters& http, std::string_view model) {
  Page page(model);
  for (const Number& n : kNumbers) {
    page.head(n.name, n.type, n.help);
    page.line(n.name, n.value(stats));
  }
  page.head("vllm:request_success_total", "counter", "Choices that ended, by reason");
  for (size_t i = 0; i < stats.finished.size(); ++i) {
    page.line("vllm:request_success_total", static_cast<double>(stats.finished[i]),
              fmt::format("finished_reason=\"{}\"", engine::to_string(static_cast<engine::FinishReason>(i))));
  }
  for (const Buckets& b : kHistograms) page.histogram(b.name, b.help, stats.*b.histogram);
  add_runner(page, stats);
  page.bare("spyre_http_connections", "gauge", "Open connections", static_cast<double>(http.connections));
  page.bare("spyre_http_requests_total", "counter", "HTTP requests read", static_cast<double>(http.requests));
  page.bare("spyre_http_refused_total", "counter", "Connections and requests beyond the server's limits",
            static_cast<double>(http.refused));
  page.bare("spyre_http_vanished_total", "counter", "Clients that left before their answer was complete",
            static_cast<double>(http.vanished));
  page.bare("process_resident_memory_bytes", "gauge", "Resident memory", resident_bytes());
  return page.take();
}

}  // namespace spyre::server
