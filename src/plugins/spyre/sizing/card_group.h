// One model on a group of cards: what a step takes there, by a cost configuration, and whether it fits. The unit that
// answers, tables and advice are made from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/sizing.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/compiler/attention_program.h"
#include "plugins/spyre/sizing/card_fit.h"
#include "plugins/spyre/sizing/step_cost.h"

namespace spyre::sizing {

struct StepTime {
  PartCost body, head;
  double attention_ns = 0;  // reading keys, of all layers
  double between_cards_ns = 0, host_ns = 0;
  double ns() const { return body.ns + head.ns + attention_ns + between_cards_ns + host_ns; }
};

class CardGroup {
 public:
  // |question| is complete and |shape| divides among |cards|. Programs are compiled where the model can be built; why
  // not otherwise is in not_compiled().
  CardGroup(const platform::Platform& platform, const platform::SizingQuestion& question, const ModelShape& shape,
            int64_t cards);

  const CardShare& share() const { return share_; }
  const std::string& not_compiled() const { return not_compiled_; }

  // One token of each of |sequences|, each with |length| keys.
  StepTime decode(const device::CostConfig& config, int64_t sequences, int64_t length);
  // The same with pages that lie head by head, sequence after sequence (SPYRE_ATTN_KV_LAYOUT=head_major): all of it,
  // ns.
  double head_major_decode_ns(const device::CostConfig& config, int64_t sequences, int64_t length);
  // A prompt of |tokens|, chunk by chunk, and the head's one row.
  StepTime prefill(const device::CostConfig& config, int64_t tokens);
  // |sequences| texts of |length| tokens through an encoder.
  StepTime encode(const device::CostConfig& config, int64_t sequences, int64_t length);
  CardFit fit(int64_t sequences, int64_t length);
  // What an attention program of |keys| keys reads: powers of two of blocks, at most the context's.
  int64_t padded_keys(int64_t keys) const;
  // Of a step of decode and of a chunk of a prompt.
  nlohmann::json programs();

 private:
  // One layer's attention programs (compiler/attention_program.h), padded as the ladders pad.
  double attention_ns(const device::CostConfig& config, const attention::Variant& variant,
                      compiler::AttentionTimes& times) const;
  double prompt_attention(const device::CostConfig& config, int64_t query, int64_t keys);
  double decode_attention(const device::CostConfig& config, int64_t sequences, int64_t keys);
  double between_cards(const device::CostConfig& config, int64_t rows) const;
  double host_transfers(const device::CostConfig& config, int64_t rows, int64_t logits_rows) const;

  const platform::SizingQuestion& question_;
  const ModelShape& shape_;
  CardShare share_;
  std::unique_ptr<StepParts> parts_;
  compiler::AttentionTimes token_major_, head_major_{attention::KvLayout::kHeadMajor};
  std::string not_compiled_;
};

}  // namespace spyre::sizing
