// The environment variables of the Spyre platform, declared once: the table gives the help, the docs and the checks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/device/dl16_math.h"

namespace spyre::plugin {

struct SettingInfo {
  std::string_view name;
  std::string_view values;   // what it takes
  std::string_view initial;  // its default, in words
  std::string_view help;
};

std::span<const SettingInfo> all_settings();

struct Settings {
  std::vector<int64_t> kv_buckets, query_buckets;                    // empty = the default ladder
  bool record = true;                                                // SPYRE_ATTN_RECORD
  attention::KvLayout kv_layout = attention::KvLayout::kTokenMajor;  // SPYRE_ATTN_KV_LAYOUT
  bool attention_profiling = false;        // SPYRE_ATTN_PROFILING: spans of attention in a trace
  std::optional<int64_t> attention_cores;  // SPYRE_ATTN_MAX_CORES: what attention programs are divided over at most
  bool whole_model = false;                // SPYRE_COMPILE_GRANULARITY: the body is one unit, not each of its blocks

  device::Dl16Settings dl16;  // SPYRE_DL16_*: what --numerics dl16 computes

  // Reads and checks every variable of the table. Throws Error(kInvalidArgument) naming the variable, its value and
  // what it takes; kUnsupported for a value of the original's that is not built.
  static Settings from_environment();
};

}  // namespace spyre::plugin
