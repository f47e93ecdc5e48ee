// What the user asked for, and what a platform made of it. One object travels from the command line (or vLLM's config)
// through Platform::check_and_update_config to the worker; unset fields are filled in there, and every refusal names
// the field and the numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/export.h"
#include "formats/model_config.h"

namespace spyre::platform {

// kOurs: defaults that serve the user. kOriginal: the original plugin's limits and defaults (fp16 only, a derived
// length capped at 2048, 4 sequences).
enum class Preset : uint8_t { kOurs, kOriginal };

struct EngineConfig {
  std::filesystem::path model;
  std::string platform = "spyre";
  Preset preset = Preset::kOurs;

  std::optional<DType> dtype;            // unset = auto: the checkpoint's own 16-bit type
  std::optional<int64_t> max_model_len;  // unset = derived from the model
  std::optional<int64_t> block_size;     // tokens per KV block
  std::optional<int64_t> max_num_seqs;
  std::optional<int64_t> max_num_batched_tokens;  // tokens per step
  // The KV cache: a number of blocks, or bytes, or a share of the memory this process may use; the first that is set
  // counts. None of them = enough for one request of max_model_len, or, for |serving|, for max_num_seqs of them as far
  // as memory goes (size_kv_cache).
  std::optional<int64_t> num_kv_blocks;
  std::optional<int64_t> kv_cache_bytes;
  std::optional<double> memory_utilization;
  bool serving = false;
  std::optional<std::vector<int64_t>> token_buckets;  // rows of the body; unset = the platform's ladder
  bool enforce_eager = false;

  std::string order = "auto";  // bf16 summation order: auto, pair or tile
  int threads = 0;             // 0 = usable CPUs
  bool checked = false;        // device ops one by one on card extents, padding poisoned
  // What 16-bit values are on the device: "ieee", the dtype itself, or "dl16", the card's own format and roundings
  // (slow; the spyre platform only).
  std::string numerics = "ieee";

  int64_t data_parallel_size = 1, pipeline_parallel_size = 1, tensor_parallel_size = 1;
};

}  // namespace spyre::platform
