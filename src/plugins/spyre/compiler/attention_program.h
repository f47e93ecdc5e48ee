// The card programs of attention: what a variant (attention/buckets.h) and a KV store are as device operations, in the
// planner's terms. A block's program only calls them; how long they take depends on a step's keys, how well they stay
// inside the card on how pages lie (attention/kv_layout.h). Made from shapes alone, when a report or an estimate asks.
//
// Per page of a sequence: gather K and V; scores q K^T, scaled (capped, with a mask tile); the online softmax's
// maximum, exponentials and sums; P V; what came before rescaled. Pages are unrolled, as static programs are.
//
//   token-major  a gathered page is [block, kv heads, head size]: it is permuted to [kv heads, block, head size] and,
//                because the groups of query heads are a batch dimension of the products, cloned out to them
//                (torch-spyre #4123). One-entry index: the gather is divided inside the page.
//   head-major   one entry per (page, kv head): the page arrives permuted, its gather is divided by KV heads, as the
//                products are, and the groups are rows of one batch dimension. Decodes are divided over 8 cores at
//                most, since their products could only fill more by splits that the gather does not have.
//   batched      token-major decode of a grid (blocks, lanes): lanes and KV heads are one batch dimension, groups are
//                rows; chunks of 32 / lanes blocks are gathered together.
//
// In both layouts K is restickified, since its product wants keys in the stick. Sources: the original's architecture
// and torch-spyre (H), but for what a gather is divided by first and how equal divisions of a product are told apart
// (INF).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::compiler {

struct AttentionShape {
  int64_t heads = 1, kv_heads = 1;
  int64_t head_size = 64;  // on the card
  int64_t block_size = 128;
  DType dtype = DType::kF16;
  attention::KvLayout layout = attention::KvLayout::kTokenMajor;
  bool soft_cap = false;
  auto operator<=>(const AttentionShape&) const = default;
};

struct AttentionOptions {
  std::optional<int64_t> max_cores;  // SPYRE_ATTN_MAX_CORES
  LxOptions lx;
};

inline constexpr int64_t kHeadMajorCores = 8;

// What a variant is divided over at most: |max_cores| if given; 8 for a head-major variant whose KV heads and padded
// query rows cannot fill 32 cores; 32.
int64_t attention_cores(const AttentionShape& shape, const attention::Variant& variant,
                        std::optional<int64_t> max_cores = std::nullopt);

// What becomes of the pages that a program reads.
struct PageAccount {
  int64_t gathers = 0;                             // of K and of V, one per page or chunk of pages each
  int64_t resident_keys = 0, resident_values = 0;  // gathered pages that live in the scratchpad to their last use
  int64_t copies = 0;                              // permuted or cloned out
  int64_t restickifies = 0;
  int64_t device_bytes = 0;  // traffic of device memory: from the cache, and of all copies that do not stay inside
};

struct AttentionProgram {
  int64_t cores = 0;  // at most
  device::CardPlan plan;
  std::vector<std::string> names;     // parallel to the buffers
  std::vector<device::OpWork> works;  // parallel to the operations: what is left to device memory
  RuleLog rules_met;
  PageAccount pages;
};

// Throws Error(kRuleViolation): L-13, L-14. REQUIRES: heads is a multiple of kv_heads; no grid for a head-major cache.
AttentionProgram attention_program(const AttentionShape& shape, const attention::Variant& variant,
                                   const AttentionOptions& options = {});
// K and V of |tokens| rows into their pages: one indexed copy per tensor, or a contiguous source and one per KV head.
AttentionProgram kv_store_program(const AttentionShape& shape, int64_t tokens, const AttentionOptions& options = {});

// Bundle by bundle: neighbours that hand a result on in the scratchpad compute while they move.
double program_ns(const AttentionProgram& program, const device::CostConfig& config);

// Times of the programs that a model's cache has, each made once. Not thread-safe.
class AttentionTimes {
 public:
  explicit AttentionTimes(attention::KvLayout layout = attention::KvLayout::kTokenMajor, AttentionOptions options = {})
      : layout_(layout), options_(options) {}

  attention::KvLayout layout() const { return layout_; }  // of the caches

  double attention_ns(const AttentionShape& shape, const attention::Variant& variant,
                      const device::CostConfig& config = device::measured_costs());
  double kv_store_ns(const AttentionShape& shape, int64_t tokens,
                     const device::CostConfig& config = device::measured_costs());

 private:
  attention::KvLayout layout_;
  AttentionOptions options_;
  std::map<std::tuple<AttentionShape, attention::Variant, std::string_view>, double> attention_;
  std::map<std::tuple<AttentionShape, int64_t, std::string_view>, double> stores_;
};

}  // namespace spyre::compiler
