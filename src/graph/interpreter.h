// The reference interpreter: runs a graph operator by operator, written to be read, not to be fast.
//
// Two modes. kFp32 ignores storage dtypes and keeps every value in fp32: the oracle for golden logits. kExact rounds
// every value to its storage dtype and sums in the named orders of docs/numerics.md: a compiled program must equal it
// bit for bit. Values are held as fp32 in both modes (a 16-bit value is exact in fp32); integers as int32.
//
// An Interpreter holds no state between runs; concurrent runs on different bindings are safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dot_orders.h"
#include "graph/attention_batch.h"
#include "graph/graph.h"

namespace spyre::graph {

enum class EvalMode : uint8_t { kFp32, kExact };

// A host tensor, row-major. Either owns its elements or views somebody else's (weights). Float types are held as fp32,
// i32 as int32.
class SPYRE_API Array {
 public:
  Array() = default;
  static Array zeros(Type type);
  static Array view(Type type, const float* data);    // |data| must outlive the array; |type| is a float tensor
  static Array view(Type type, const int32_t* data);  // i32 tensor
  static Array of(Type type, std::vector<float> values);
  static Array of_ints(Type type, std::vector<int32_t> values);

  const Type& type() const { return type_; }
  int64_t elements() const { return type_.elements(); }
  std::span<const float> floats() const { return {floats_, static_cast<size_t>(elements())}; }
  std::span<const int32_t> ints() const { return {ints_, static_cast<size_t>(elements())}; }
  std::span<float> mutable_floats();  // REQUIRES: owns its elements
  std::span<int32_t> mutable_ints();
  Array reshaped(Type type) const;  // shares the elements

 private:
  Type type_;
  std::shared_ptr<void> owner_;
  const float* floats_ = nullptr;
  const int32_t* ints_ = nullptr;
};

// The K and V pages of one layer: [blocks, block_size, heads, head size] each, fp32. Owned by the platform.
struct SPYRE_API KvPages {
  Type type;  // kv cache
  int64_t num_blocks = 0, block_size = 0;
  std::vector<float> k, v;

  static KvPages allocate(const Type& kv_type, int64_t num_blocks, int64_t block_size);
  // Index of the first element of (slot, head); slot = block * block_size + offset.
  size_t index(int64_t slot, int64_t head) const;
};

// What one run is given: one entry per graph input / parameter / state, in the graph's order. Batch inputs have an
// empty Array and use |batch|.
struct Bindings {
  std::vector<Array> inputs, parameters;
  std::vector<KvPages*> states;
  const AttentionBatch* batch = nullptr;
};

// What an operator's evaluate() sees.
struct EvalContext {
  const Op& op;
  std::span<const Array* const> inputs;  // null for states and batches
  std::span<KvPages* const> states;      // parallel to inputs; null for tensors
  const AttentionBatch* batch;
  std::span<const Type> output_types;
  std::vector<Array> outputs;  // to be filled; a state result is left empty
  EvalMode mode;
  DotOrder bf16_order;  // kPair or kTile

  // The value as it is stored: rounded to |dtype| in exact mode, unchanged otherwise.
  float store(DType dtype, float x) const;
  DotOrder order(DType dtype) const { return dtype == DType::kBF16 ? bf16_order : DotOrder::kSequential; }
};

class SPYRE_API Interpreter {
 public:
  explicit Interpreter(EvalMode mode, DotOrder bf16_order = DotOrder::kPair) : mode_(mode), bf16_order_(bf16_order) {}

  // Throws Error(kInvalidArgument) when a binding's type differs from the graph's. In exact mode inputs and parameters
  // must hold values of their dtype. |keep| (optional) receives every value by id, for layer-by-layer comparisons.
  std::vector<Array> run(const Graph& graph, const Bindings& bindings, std::vector<Array>* keep = nullptr) const;

 private:
  EvalMode mode_;
  DotOrder bf16_order_;
};

}  // namespace spyre::graph
