// The flags that every command with a model shares, and what they open: platform, worker, tokenizer.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/instance.h"
#include "platform/plugin.h"
#include "text/model_tokenizer.h"

namespace CLI {
class App;
}

namespace spyre::cli {

// Flags are vLLM's names where vLLM has one.
struct ModelOptions {
  std::string model;
  std::string platform = "spyre";
  std::string dtype = "auto";
  std::string preset = "ours";
  std::string order = "auto";
  std::string numerics = "ieee";
  std::string token_buckets;
  std::optional<int64_t> max_model_len, block_size, max_num_seqs, max_num_batched_tokens, num_kv_blocks, kv_cache_bytes;
  std::optional<double> memory_utilization;
  int threads = 0;
  bool checked = false;
  bool enforce_eager = false;

  // Without |one_platform| there are no --platform, --dtype, --order and --numerics: the command has its own.
  void add_to(CLI::App& command, bool one_platform = true);
  // Throws UsageError for a value that cannot be read.
  platform::EngineConfig config() const;
};

// An opened model. The registry owns the platform, so it comes first and goes last.
struct OpenModel {
  std::unique_ptr<platform::PlatformRegistry> registry;
  const platform::Platform* platform = nullptr;
  platform::Instance instance;
  // Where it was asked for: get() gives it, or throws what opening it threw.
  std::future<std::optional<text::Tokenizer>> tokenizer;
  double load_seconds = 0;
};

enum class Texts : uint8_t { kNone, kTokenizer };

// Loads with a progress bar on stderr when that is a terminal and |progress| is set. A tokenizer is opened meanwhile,
// on a thread of its own: compiling the model's programs leaves the other cores idle.
OpenModel open_model(const platform::EngineConfig& config, bool progress, Texts texts = Texts::kNone);

// Set by Ctrl-C (SIGINT) and SIGTERM once install_interrupt() has run; a second signal ends the process. From then on a
// pipe without a reader is an error of the write and no signal.
extern std::atomic<bool> interrupted;
void install_interrupt();

// Seconds since the program was started (its libraries loaded).
double seconds_since_start();

// "auto" is none. Throws UsageError naming |flag|.
std::optional<DType> parse_dtype_flag(const char* flag, const std::string& name);

// "5,17,3" as numbers. Throws UsageError naming |flag| and the entry.
std::vector<int64_t> parse_list(const std::string& text, const char* flag);

}  // namespace spyre::cli
