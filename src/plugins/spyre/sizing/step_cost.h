// What the parts of a step cost on one card of a group: from compiled programs where the model can be built, otherwise
// from the shape alone. Both speak of the same parts, so that one can be held against the other.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "platform/platform.h"
#include "plugins/spyre/device/cost.h"
#include "plugins/spyre/sizing/card_share.h"

namespace spyre::sizing {

struct PartCost {
  double ns = 0;
  double compute_ns = 0, memory_ns = 0;  // of all bundles: how much of each, had it been alone
  int64_t read_bytes = 0, write_bytes = 0, macs = 0;
  PartCost& operator+=(const PartCost& other);
  PartCost times(int64_t count) const;
};

PartCost cost_of(const device::CostConfig& config, const device::OpWork& work);

// Embedding, blocks without the reading of keys, and final norm; the output head.
class StepParts {
 public:
  virtual ~StepParts() = default;
  virtual PartCost body(const device::CostConfig& config, int64_t rows) = 0;
  virtual PartCost head(const device::CostConfig& config, int64_t rows) = 0;
  virtual int64_t pool_bytes(int64_t rows) = 0;  // of intermediates, of the largest program
  // The programs of a step of |rows| rows, each once (device/program_json.h) with the rows of its bucket and how often
  // a step runs it ("part", "rows", "launches"); none where nothing is compiled.
  virtual nlohmann::json programs(int64_t rows) {
    (void)rows;
    return nlohmann::json::array();
  }
};

// By shape arithmetic: products with their operands, norms and the MLP's elementwise work. Intermediates between them
// go through memory.
std::unique_ptr<StepParts> parts_from_shape(const ModelShape& shape, const CardShare& share);

// By compiling what one card runs: the model of |config| (a config.json) with this card's share of heads, MLP columns
// and vocabulary. Throws what building and compiling throws for a model that is not built (Error(kUnsupported)) or that
// breaks a rule. |length| is the longest sequence, |step_tokens| the most rows of a step.
std::unique_ptr<StepParts> parts_from_programs(const platform::Platform& platform, const nlohmann::json& config,
                                               const ModelShape& shape, const CardShare& share, int64_t length,
                                               int64_t step_tokens);

// One layer's attention of an encoder: all |length| rows of one text with each other, inside the card but for q, k, v
// and the result.
PartCost encoder_attention_cost(const device::CostConfig& config, const CardShare& share, int64_t length);

}  // namespace spyre::sizing
