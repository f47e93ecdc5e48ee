// The flags that every command with a model shares, and what they open: platform, worker, tokenizer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/instance.h"
#include "platform/plugin.h"
#include "text/tokenizer.h"

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
  std::string token_buckets;
  std::optional<int64_t> max_model_len, block_size, max_num_seqs, max_num_batched_tokens, num_kv_blocks, kv_cache_bytes;
  int threads = 0;
  bool checked = false;

  void add_to(CLI::App& command);
  // Throws Error(kInvalidArgument) for a value that cannot be read.
  platform::EngineConfig config() const;
};

// An opened model. The registry owns the platform, so it comes first and goes last.
struct OpenModel {
  std::unique_ptr<platform::PlatformRegistry> registry;
  const platform::Platform* platform = nullptr;
  platform::Instance instance;
  double load_seconds = 0;
};

// Loads with a progress bar on stderr when that is a terminal and |progress| is set.
OpenModel open_model(const platform::EngineConfig& config, bool progress);

// The tokenizer of a model folder or GGUF file; none when a folder has no tokenizer.json.
std::optional<text::Tokenizer> open_tokenizer(const formats::Checkpoint& checkpoint);

// Set by Ctrl-C (SIGINT) and SIGTERM once install_interrupt() has run; a second signal ends the process.
extern std::atomic<bool> interrupted;
void install_interrupt();

// "5,17,3" as numbers. Throws Error(kInvalidArgument) naming |flag| and the entry.
std::vector<int64_t> parse_list(const std::string& text, const char* flag);

}  // namespace spyre::cli
