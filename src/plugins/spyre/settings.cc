#include "plugins/spyre/settings.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/dl16_settings.h"

namespace spyre::plugin {
namespace {

constexpr SettingInfo kSettings[] = {
    {"SPYRE_ATTN_KV_BUCKETS", "KV lengths, comma-separated", "powers of two from the block size",
     "The ladder of KV lengths that attention programs are compiled for."},
    {"SPYRE_ATTN_QUERY_BUCKETS", "query lengths, comma-separated", "1 and multiples of min(512, tokens per step)",
     "The ladder of query lengths that attention programs are compiled for."},
    {"SPYRE_ATTN_RECORD", "0 or 1", "1", "1: warm-up compiles every attention variant; 0: each on its first use."},
    {"SPYRE_ATTN_KV_LAYOUT", "token_major or head_major", "token_major",
     "How a KV page lies in card memory: as tokens come (one store per tensor, a permute per page read; decodes can be "
     "batched), or head by head (a store per KV head, no permute)."},
    {"SPYRE_ATTN_MAX_CORES", "1 to 32", "32; of a head-major decode 8",
     "How many cores attention programs are divided over at most. What a core cannot mirror from the page's gather "
     "costs the page its place in the scratchpad."},
    {"SPYRE_ATTN_PROFILING", "0 or 1", "0",
     "1: a trace (--trace) has the spans spyre_attn::forward, ::reshape_and_cache "
     "and ::online_softmax."},
    {"SPYRE_COMPILE_GRANULARITY", "block or model", "block",
     "What is compiled as a unit: each block of a list of them, so that equal blocks share a program, or the model's "
     "whole body."},
    {"SPYRE_DL16_TIES", "away, even, zero or odd", "away", "--numerics dl16: where a number halfway between two goes."},
    {"SPYRE_DL16_SUBNORMALS", "as_shipped or fixed", "as_shipped",
     "--numerics dl16: as_shipped halves an fp16 subnormal on its way to the card."},
    {"SPYRE_DL16_TOP", "format or constants", "format",
     "--numerics dl16: the largest number, 8.57e9 by the format or 4.29e9 by the encoder of constants."},
    {"SPYRE_DL16_EXP_FLOOR", "a number from 0 to 1", "2^-24", "--numerics dl16: exp never gives less."},
    {"SPYRE_DL16_EXP_GUARD", "0 or 1", "1",
     "--numerics dl16: 1: exp is 0 at and below -25 ln 2, as the compiler guards it."},
    {"SPYRE_DL16_ACCUMULATE", "fp32, or a chunk of 1 to 65536 elements", "fp32",
     "--numerics dl16: what sums are kept in; a chunk: DL16, rounded at each addition, chunk by chunk."},
};

constexpr size_t kMaxLadder = 1024;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool flag(const char* name, bool initial) {
  const std::optional<std::string> value = variable(name);
  if (!value) return initial;
  if (*value != "0" && *value != "1") {
    throw_error(ErrorCode::kInvalidArgument, "{}='{}' is neither 0 nor 1", name, *value);
  }
  return *value == "1";
}

std::vector<int64_t> ladder(const char* name) {
  std::vector<int64_t> entries;
  const std::optional<std::string> text = variable(name);
  if (!text) return entries;
  size_t begin = 0;
  while (begin <= text->size()) {
    const size_t comma = std::min(text->find(',', begin), text->size());
    int64_t entry = 0;
    const char* first = text->data() + begin;
    const char* last = text->data() + comma;
    while (first < last && *first == ' ') ++first;
    while (last > first && last[-1] == ' ') --last;
    const auto [end, error] = std::from_chars(first, last, entry);
    if (error != std::errc() || end != last || entry < 1) {
      throw_error(ErrorCode::kInvalidArgument, "{}='{}': '{}' is not a length of at least 1", name, *text,
                  std::string(first, last));
    }
    entries.push_back(entry);
    if (entries.size() > kMaxLadder) {
      throw_error(ErrorCode::kInvalidArgument, "{} has more than {} entries", name, kMaxLadder);
    }
    begin = comma + 1;
  }
  return entries;
}

attention::KvLayout read_kv_layout() {
  using attention::KvLayout;
  const std::optional<std::string> value = variable("SPYRE_ATTN_KV_LAYOUT");
  if (!value) return KvLayout::kTokenMajor;
  for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
    if (*value == to_string(layout)) return layout;
  }
  throw_error(ErrorCode::kInvalidArgument, "SPYRE_ATTN_KV_LAYOUT='{}' is not a known value; known: {}, {}", *value,
              to_string(KvLayout::kTokenMajor), to_string(KvLayout::kHeadMajor));
}

std::optional<int64_t> read_attention_cores() {
  const char* name = "SPYRE_ATTN_MAX_CORES";
  const std::optional<std::string> text = variable(name);
  if (!text) return std::nullopt;
  int64_t cores = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, cores);
  if (error != std::errc() || end != last || cores < 1 || cores > device::kCores) {
    throw_error(ErrorCode::kInvalidArgument, "{}='{}' is not a number of cores from 1 to {}", name, *text,
                device::kCores);
  }
  return cores;
}

bool read_whole_model() {
  const std::string value = variable("SPYRE_COMPILE_GRANULARITY").value_or("block");
  if (value != "block" && value != "model") {
    throw_error(ErrorCode::kInvalidArgument, "SPYRE_COMPILE_GRANULARITY='{}' is not a known value; known: block, model",
                value);
  }
  return value == "model";
}

}  // namespace

std::span<const SettingInfo> all_settings() {
  return kSettings;
}

Settings Settings::from_environment() {
  Settings settings;
  settings.kv_buckets = ladder("SPYRE_ATTN_KV_BUCKETS");
  settings.query_buckets = ladder("SPYRE_ATTN_QUERY_BUCKETS");
  settings.record = flag("SPYRE_ATTN_RECORD", settings.record);
  settings.attention_profiling = flag("SPYRE_ATTN_PROFILING", settings.attention_profiling);
  settings.kv_layout = read_kv_layout();
  settings.dl16 = read_dl16_settings(variable);
  settings.attention_cores = read_attention_cores();
  settings.whole_model = read_whole_model();
  return settings;
}

}  // namespace spyre::plugin
