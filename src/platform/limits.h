// What platforms check and complete in a config in one way. Each platform calls what fits it from
// check_and_update_config; all of it is idempotent. Errors are kInvalidArgument (a number out of range) or
// kUnsupported, and name the field and the number.
#pragma once

#include <string_view>

#include "base/export.h"
#include "platform/config.h"

namespace spyre::platform {

// Fills in what is unset of max_model_len (the model's; at most 2048 with Preset::kOriginal), max_num_seqs (256; 4 with
// kOriginal), max_num_batched_tokens (512, or max_model_len if that is less, but a token for each sequence) and
// block_size (|block_size|). Bounds keep every product of them within 64 bits: 65536 sequences, 2^20 tokens per step,
// blocks of 65536 tokens, 2^62 for the KV cache; max_model_len is at most the model's.
SPYRE_API void complete_lengths(EngineConfig& config, const formats::ModelConfig& model, int64_t block_size);

// Refuses every parallel size but 1: "tensor_parallel_size is 2: <why>, it must be 1".
SPYRE_API void refuse_parallel(const EngineConfig& config, std::string_view why);

// 0 (automatic) to ThreadTeam::kMaxSize.
SPYRE_API void check_threads(const EngineConfig& config);

}  // namespace spyre::platform
