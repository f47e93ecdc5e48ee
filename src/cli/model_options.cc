#include "cli/model_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/error.h"

namespace spyre::cli {

std::atomic<bool> interrupted{false};

namespace {

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
}

std::vector<int64_t> parse_list(const std::string& text, const char* flag) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string entry = CLI::detail::trim_copy(text.substr(begin, comma - begin));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), value);
    if (error != std::errc() || end != entry.data() + entry.size()) {
      throw_error(ErrorCode::kInvalidArgument, "{}: '{}' is not a whole number", flag, entry);
    }
    values.push_back(value);
    begin = comma + 1;
  }
  return values;
}

void ModelOptions::add_to(CLI::App& command) {
  command.add_option("MODEL", model, "A model folder (config.json, *.safetensors) or a .gguf file")->required();
  const char* group = "Model and device";
  command.add_option("--platform", platform, "Where to run: spyre, cpu (the reference, slow)")
      ->capture_default_str()
      ->group(group);
  command.add_option("--dtype", dtype, "auto, float16, bfloat16, float32 (cpu only)")
      ->capture_default_str()
      ->group(group);
  command.add_option("--order", order, "Summation order of bfloat16: auto, pair, tile")
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-model-len", max_model_len, "Longest sequence, prompt and answer together")->group(group);
  command.add_option("--max-num-batched-tokens", max_num_batched_tokens, "Tokens per step")->group(group);
  command.add_option("--max-num-seqs", max_num_seqs, "Sequences per step")->group(group);
  command.add_option("--block-size", block_size, "Tokens per KV block")->group(group);
  command.add_option("--num-gpu-blocks-override", num_kv_blocks, "KV blocks")->group(group);
  command.add_option("--kv-cache-memory-bytes", kv_cache_bytes, "Memory for the KV cache")->group(group);
  command.add_option("--token-buckets", token_buckets, "Rows that programs are compiled for: 1,8,64,512")->group(group);
  command.add_option("--threads", threads, "0: as many as may be used")->capture_default_str()->group(group);
  command.add_option("--preset", preset, "ours, or original: the original plugin's limits")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--checked", checked, "Run device operations one by one on card extents (slow)")->group(group);
}

platform::EngineConfig ModelOptions::config() const {
  platform::EngineConfig c;
  c.model = model;
  c.platform = platform;
  if (dtype != "auto") c.dtype = parse_dtype(dtype);
  if (preset == "original") {
    c.preset = platform::Preset::kOriginal;
  } else if (preset != "ours") {
    throw_error(ErrorCode::kInvalidArgument, "--preset '{}' is not known; known: ours, original", preset);
  }
  c.order = order;
  c.max_model_len = max_model_len;
  c.block_size = block_size;
  c.max_num_seqs = max_num_seqs;
  c.max_num_batched_tokens = max_num_batched_tokens;
  c.num_kv_blocks = num_kv_blocks;
  c.kv_cache_bytes = kv_cache_bytes;
  if (!token_buckets.empty()) c.token_buckets = parse_list(token_buckets, "--token-buckets");
  c.threads = threads;
  c.checked = checked;
  return c;
}

OpenModel open_model(const platform::EngineConfig& config, bool progress) {
  const auto start = std::chrono::steady_clock::now();
  OpenModel open;
  open.registry = std::make_unique<platform::PlatformRegistry>(
      platform::PlatformRegistry::discover(platform::PlatformRegistry::default_manifest_dirs()));
  open.platform = &open.registry->get(config.platform);
  {
    ProgressBar bar;
    const bool draw = progress && isatty(STDERR_FILENO);
    open.instance = platform::make_instance(*open.platform, config, [&](const runner::LoadProgress& p) {
      if (interrupted) throw_error(ErrorCode::kCancelled, "interrupted while loading");
      if (draw) bar.show(p);
    });
  }
  open.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return open;
}

std::optional<text::Tokenizer> open_tokenizer(const formats::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return text::Tokenizer::from_gguf(*checkpoint.gguf());
  if (!std::filesystem::exists(checkpoint.folder() / "tokenizer.json")) return std::nullopt;
  return text::Tokenizer::from_model_dir(checkpoint.folder());
}

}  // namespace spyre::cli
