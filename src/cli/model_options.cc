#include "cli/model_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>

#include "base/error.h"
#include "cli/command.h"

namespace spyre::cli {

std::atomic<bool> interrupted{false};

namespace {

const std::chrono::steady_clock::time_point kStart = std::chrono::steady_clock::now();

// A second signal does not wait for the step that is running.
void on_signal(int signal) {
  if (interrupted.exchange(true)) _exit(128 + signal);
}

// One line, redrawn in place; erased at the end.
class ProgressBar {
 public:
  void show(const runner::LoadProgress& p) {
    const int percent = p.bytes_total > 0 ? static_cast<int>(100 * p.bytes_done / p.bytes_total) : 100;
    if (percent == shown_) return;
    shown_ = percent;
    constexpr int kWidth = 30;
    const int filled = kWidth * percent / 100;
    std::fprintf(stderr, "\rloading [%s%s] %3d%%  %lld of %lld MB", std::string(filled, '=').c_str(),
                 std::string(kWidth - filled, ' ').c_str(), percent, static_cast<long long>(p.bytes_done >> 20),
                 static_cast<long long>(p.bytes_total >> 20));
    std::fflush(stderr);
  }
  ~ProgressBar() {
    if (shown_ >= 0) std::fprintf(stderr, "\r\033[K");
  }

 private:
  int shown_ = -1;
};

}  // namespace

void install_interrupt() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
}

double seconds_since_start() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - kStart).count();
}

std::vector<int64_t> parse_list(const std::string& text, const char* flag) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string entry = CLI::detail::trim_copy(text.substr(begin, comma - begin));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), value);
    if (error != std::errc() || end != entry.data() + entry.size()) {
      throw UsageError(fmt::format("{}: '{}' is not a whole number", flag, entry));
    }
    values.push_back(value);
    begin = comma + 1;
  }
  return values;
}

void ModelOptions::add_to(CLI::App& command, bool one_platform) {
  command.add_option("MODEL", model, "A folder with config.json and *.safetensors, or a .gguf file")->required();
  const char* group = "Model and device";
  if (one_platform) {
    command
        .add_option(
            "--platform", platform,
            "Where to run: spyre (the software device), cpu (the reference: exact and slow), or a plugin's name; "
            "'spyre platforms' lists them")
        ->capture_default_str()
        ->type_name("NAME")
        ->group(group);
    command
        .add_option("--dtype", dtype,
                    "auto (the file's own 16-bit type; float32 on cpu), float16, bfloat16, float32 (cpu only)")
        ->capture_default_str()
        ->type_name("TYPE")
        ->group(group);
    command
        .add_option(
            "--order", order,
            "How bfloat16 products are summed: pair, tile (AMX), auto (what this machine does best). Changes the "
            "last bits")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "pair", "tile"}))
        ->group(group);
    command
        .add_option("--numerics", numerics,
                    "spyre: ieee, or dl16: 16-bit values in the card's own format, rounded as its operators do (slow). "
                    "'spyre inspect --topic settings' lists the SPYRE_DL16_* variables")
        ->capture_default_str()
        ->check(CLI::IsMember({"ieee", "dl16"}))
        ->group(group);
  }
  command.add_option("--threads", threads, "Threads; 0: as many CPUs as this process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group(group);
  auto size = [&](const char* flag, std::optional<int64_t>& value, const char* help) {
    command.add_option(flag, value, help)
        ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max(), "of at least 1"))
        ->type_name("N")
        ->group("Limits");
  };
  size("--max-model-len", max_model_len, "Longest sequence in tokens, prompt and answer together [the model's]");
  size("--max-num-batched-tokens", max_num_batched_tokens,
       "Tokens per step: a longer prompt is read in chunks of this size [512]");
  size("--max-num-seqs", max_num_seqs, "Sequences per step [256]");
  size("--block-size", block_size, "Tokens per KV block; spyre: a multiple of 64 [128; cpu: 16]");
  size("--num-gpu-blocks-override", num_kv_blocks, "KV blocks [enough for one sequence of the longest length]");
  size("--kv-cache-memory-bytes", kv_cache_bytes, "Bytes for the KV cache, instead of a number of blocks");
  command
      .add_option("--gpu-memory-utilization", memory_utilization,
                  "Instead: weights and KV cache take this share of the memory that the process may use, above 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->group("Limits");
  command.add_option("--token-buckets", token_buckets, "Row counts that programs are compiled for: 1,8,64,512")
      ->type_name("LIST")
      ->group("Limits");
  command.add_option("--preset", preset, "ours, or original: the limits of the original plugin (float16, 2048 tokens)")
      ->capture_default_str()
      ->check(CLI::IsMember({"ours", "original"}))
      ->group("Limits");
  command.add_flag("--checked", checked, "Run device operations one by one on the card's padded extents (slow)")
      ->group(group);
  command
      .add_flag("--enforce-eager", enforce_eager,
                "spyre: every operator a program of its own, as without a compiler: the same tokens, more card time")
      ->group(group);
}

std::optional<DType> parse_dtype_flag(const char* flag, const std::string& name) {
  if (name == "auto") return std::nullopt;
  try {
    return parse_dtype(name);
  } catch (const Error&) {
    throw UsageError(fmt::format("{}: '{}' is not a type; known: auto, float16, bfloat16, float32", flag, name));
  }
}

platform::EngineConfig ModelOptions::config() const {
  platform::EngineConfig c;
  c.model = model;
  c.platform = platform;
  c.dtype = parse_dtype_flag("--dtype", dtype);
  if (preset == "original") c.preset = platform::Preset::kOriginal;
  c.order = order;
  c.max_model_len = max_model_len;
  c.block_size = block_size;
  c.max_num_seqs = max_num_seqs;
  c.max_num_batched_tokens = max_num_batched_tokens;
  c.num_kv_blocks = num_kv_blocks;
  c.kv_cache_bytes = kv_cache_bytes;
  c.memory_utilization = memory_utilization;
  if (!token_buckets.empty()) c.token_buckets = parse_list(token_buckets, "--token-buckets");
  c.threads = threads;
  c.checked = checked;
  c.enforce_eager = enforce_eager;
  c.numerics = numerics;
  return c;
}

OpenModel open_model(const platform::EngineConfig& config, bool progress, Texts texts) {
  const auto start = std::chrono::steady_clock::now();
  OpenModel open;
  open.registry = std::make_unique<platform::PlatformRegistry>(
      platform::PlatformRegistry::discover(platform::PlatformRegistry::default_manifest_dirs()));
  open.platform = &open.registry->get(config.platform);
  platform::PreparedModel prepared = platform::prepare_model(*open.platform, config);
  if (texts == Texts::kTokenizer) {
    open.tokenizer = std::async(std::launch::async,
                                [checkpoint = prepared.checkpoint] { return text::open_tokenizer(*checkpoint); });
  }
  {
    ProgressBar bar;
    const bool draw = progress && isatty(STDERR_FILENO);
    open.instance = platform::make_instance(*open.platform, std::move(prepared), [&](const runner::LoadProgress& p) {
      if (interrupted) throw_error(ErrorCode::kCancelled, "interrupted while loading");
      if (draw) bar.show(p);
    });
  }
  open.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return open;
}

}  // namespace spyre::cli
