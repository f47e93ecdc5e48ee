#include "plugins/spyre/sizing/card_group.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "nn/registry.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::sizing {
namespace {

using device::CostConfig;

constexpr int64_t kUnrolledBlocks = 64;
constexpr int64_t kIndexBytes = 4, kLogitBytes = 4;
constexpr int64_t kStepInputs = 6;  // ids, positions, slots, pages, masks, rows of logits: a transfer each

bool is_built(const platform::Platform& platform, const nlohmann::json& config) {
  nn::ModelRegistry models = nn::ModelRegistry::built_in();
  platform.register_models(models);
  const std::vector<std::string> known = models.architectures();
  const auto names = config.find("architectures");
  if (names == config.end() || !names->is_array()) return false;
  return std::any_of(names->begin(), names->end(), [&](const nlohmann::json& name) {
    return name.is_string() && std::find(known.begin(), known.end(), name.get<std::string>()) != known.end();
  });
}

}  // namespace

CardGroup::CardGroup(const platform::Platform& platform, const platform::SizingQuestion& question,
                     const ModelShape& shape, int64_t cards)
    : question_(question), shape_(shape), share_(share_of_card(shape, cards, *question.context)) {
  if (is_built(platform, question.config)) {
    try {
      parts_ = parts_from_programs(platform, question.config, shape, share_, *question.context,
                                   std::max(question.step_tokens, question.batch));
      return;
    } catch (const Error& error) {
      not_compiled_ = error.what();
    }
  } else {
    not_compiled_ = fmt::format("no model is built for '{}'", shape.family);
  }
  parts_ = parts_from_shape(shape, share_);
}

int64_t CardGroup::padded_keys(int64_t keys) const {
  int64_t padded = question_.block_size;
  while (padded < keys) padded *= 2;
  return std::min(padded, device::round_up(std::max(keys, *question_.context), question_.block_size));
}

// A program's pages are unrolled, each like the one before: from 64 on the time of the others is carried forward, since
// the plan of a thousand pages takes seconds to make.
double CardGroup::attention_ns(const CostConfig& config, const attention::Variant& variant,
                               compiler::AttentionTimes& times) const {
  const compiler::AttentionShape shape{.heads = share_.heads,
                                       .kv_heads = share_.kv_heads,
                                       .head_size = share_.head_size,
                                       .block_size = question_.block_size,
                                       .layout = times.layout()};
  const auto at = [&](int64_t blocks) {
    attention::Variant shorter = variant;
    shorter.blocks = blocks;
    return times.attention_ns(shape, shorter, config);
  };
  if (variant.blocks <= kUnrolledBlocks) return at(variant.blocks);
  const double half = at(kUnrolledBlocks / 2), whole = at(kUnrolledBlocks);
  const auto more = static_cast<double>(variant.blocks - kUnrolledBlocks);
  return whole + more * (whole - half) / (static_cast<double>(kUnrolledBlocks) / 2);
}

double CardGroup::prompt_attention(const CostConfig& config, int64_t query, int64_t keys) {
  return attention_ns(config, {.query = query, .blocks = padded_keys(keys) / question_.block_size}, token_major_);
}

double CardGroup::decode_attention(const CostConfig& config, int64_t sequences, int64_t keys) {
  const int64_t blocks = padded_keys(keys) / question_.block_size;
  if (sequences < attention::kLeastBatchedSequences) {
    return static_cast<double>(sequences) * attention_ns(config, {.query = 1, .blocks = blocks}, token_major_);
  }
  return attention_ns(config, {.query = 1, .blocks = blocks, .sequences = sequences}, token_major_);
}

// Two sums over all cards in a layer and one of the embedding, of |rows| rows.
double CardGroup::between_cards(const CostConfig& config, int64_t rows) const {
  const auto sums = static_cast<double>(2 * shape_.layers + 1);
  return sums * device::all_reduce_ns(config, rows * share_.hidden * kElementBytes, share_.cards);
}

double CardGroup::host_transfers(const CostConfig& config, int64_t rows, int64_t logits_rows) const {
  double ns = 0;
  for (int64_t i = 0; i < kStepInputs; ++i) ns += device::transfer_ns(config, rows * kIndexBytes);
  const int64_t width = share_.vocab_rows > 0 ? share_.vocab_rows * kLogitBytes : share_.hidden * kElementBytes;
  return ns + device::transfer_ns(config, logits_rows * width);
}

StepTime CardGroup::decode(const CostConfig& config, int64_t sequences, int64_t length) {
  StepTime time;
  time.body = parts_->body(config, sequences);
  time.head = parts_->head(config, sequences);
  time.attention_ns = static_cast<double>(shape_.layers) * decode_attention(config, sequences, length);
  time.between_cards_ns = between_cards(config, sequences);
  time.host_ns = host_transfers(config, sequences, sequences);
  return time;
}

double CardGroup::head_major_decode_ns(const CostConfig& config, int64_t sequences, int64_t length) {
  const StepTime other = decode(config, sequences, length);
  const int64_t blocks = padded_keys(length) / question_.block_size;
  const double attention = attention_ns(config, {.query = 1, .blocks = blocks}, head_major_);
  return other.ns() - other.attention_ns + static_cast<double>(shape_.layers * sequences) * attention;
}

StepTime CardGroup::prefill(const CostConfig& config, int64_t tokens) {
  StepTime time;
  for (int64_t done = 0; done < tokens; done += question_.step_tokens) {
    const int64_t rows = std::min(question_.step_tokens, tokens - done);
    time.body += parts_->body(config, rows);
    time.attention_ns += static_cast<double>(shape_.layers) * prompt_attention(config, rows, done + rows);
    time.between_cards_ns += between_cards(config, rows);
    time.host_ns += host_transfers(config, rows, done + rows < tokens ? 0 : 1);
  }
  time.head = parts_->head(config, 1);
  return time;
}

StepTime CardGroup::encode(const CostConfig& config, int64_t sequences, int64_t length) {
  StepTime time;
  time.body = parts_->body(config, sequences * length);
  time.attention_ns = encoder_attention_cost(config, share_, length).times(sequences * shape_.layers).ns;
  time.between_cards_ns = between_cards(config, sequences * length);
  time.host_ns = host_transfers(config, sequences * length, sequences);
  return time;
}

CardFit CardGroup::fit(int64_t sequences, int64_t length) {
  const int64_t rows = shape_.encoder ? sequences * length : std::max(question_.step_tokens, sequences);
  const KvDemand kv{.sequences = shape_.encoder ? 0 : sequences, .length = length, .block_size = question_.block_size};
  return fit_card(shape_, share_, kv, parts_->pool_bytes(rows));
}

nlohmann::json CardGroup::programs() {
  nlohmann::json out = nlohmann::json::array();
  std::set<int64_t> rows{question_.batch, std::min(question_.step_tokens, *question_.prompt)};
  for (const int64_t n : rows) {
    for (nlohmann::json& program : parts_->programs(n)) out.push_back(std::move(program));
  }
  return out;
}

}  // namespace spyre::sizing
