// kv_store: writes one K and V row per token into the KV pages of a layer.
#include <algorithm>

#include "base/error.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Op& op = in.op;
  const Type &state = in.types[0], &k = in.types[1], &v = in.types[2], &slots = in.types[3];
  require(op, state.is_state(), "C1", "it is {}", state.to_string());
  require(op, k.is_tensor() && v.is_tensor() && k.dtype == state.dtype && v.dtype == state.dtype, "C2",
          "they are {} and {} for {}", k.to_string(), v.to_string(), state.to_string());
  const bool shaped = k.rank() == 3 && k.dims == v.dims && k.dims[1] == state.dims[0] && k.dims[2] == state.dims[1];
  require(op, shaped, "C3", "k is {}, v {} and the state {}", k.to_string(), v.to_string(), state.to_string());
  require(op, slots.is_tensor() && slots.dtype == DType::kI32 && slots.dims == std::vector<Dim>{k.dims[0]}, "C4",
          "k is {} and slots {}", k.to_string(), slots.to_string());
  return {state};
}

void evaluate(EvalContext& context) {
  KvPages& pages = *context.states[0];
  const Array& k = *context.inputs[1];
  const std::span<const float> v = context.inputs[2]->floats();
  const std::span<const int32_t> slots = context.inputs[3]->ints();
  const int64_t heads = k.type().extent(1), d = k.type().extent(2);
  const int64_t capacity = pages.num_blocks * pages.block_size;
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] == -1) continue;
    if (slots[t] < -1 || slots[t] >= capacity) {
      throw_error(ErrorCode::kInvalidArgument, "kv_store: slot {} of token {} is outside {} blocks of {}", slots[t], t,
                  pages.num_blocks, pages.block_size);
    }
    // The heads of a slot lie one after another.
    const size_t to = pages.index(slots[t], 0), from = t * static_cast<size_t>(heads * d);
    std::copy_n(k.floats().begin() + from, heads * d, pages.k.begin() + to);
    std::copy_n(v.begin() + from, heads * d, pages.v.begin() + to);
  }
  context.outputs.emplace_back();
}

}  // namespace

const OpDef& kv_store_op() {
  static const OpDef def = {
      .name = "kv_store",
      .family = OpFamily::kCall,
      .summary =
          "writes k[t] and v[t] at slot slots[t] (block * block size + offset; -1: skip the token) and returns "
          "the new state",
      .operands = "state, k, v, slots",
      .min_inputs = 4,
      .max_inputs = 4,
      .attributes = {},
      .constraints = {{"C1", "the first operand is a kv cache"},
                      {"C2", "k and v are tensors of the dtype of the state"},
                      {"C3", "k and v are [T, K, D] with the heads and the head size of the state"},
                      {"C4", "slots are i32[T] with the T of k"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
