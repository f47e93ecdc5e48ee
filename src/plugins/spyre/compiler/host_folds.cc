// Which operators the host plan computes together. A fold drops stores, never a rounding (docs/numerics.md).
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "plugins/spyre/compiler/host_emitter.h"

namespace spyre::compiler {
namespace {

constexpr std::array<std::string_view, 3> kActivations = {"silu", "gelu", "gelu_tanh"};

bool is_activation(const graph::Op& op) {
  return std::find(kActivations.begin(), kActivations.end(), op.name()) != kActivations.end();
}

}  // namespace

const graph::Op* HostEmitter::foldable(graph::ValueId value) const {
  const graph::Value& v = graph_.value(value);
  if (v.role != graph::Role::kResult || users_[value].size() != 1 || is_output(value)) return nullptr;
  return &graph_.ops[v.producer];
}

const graph::Op* HostEmitter::folded_producer(graph::ValueId value) const {
  const graph::Value& v = graph_.value(value);
  if (v.role != graph::Role::kResult || !folded_[v.producer] || defined_[value]) return nullptr;
  return &graph_.ops[v.producer];
}

const graph::Op* HostEmitter::foldable_convert(graph::ValueId value, DType from) const {
  const graph::Op* op = foldable(value);
  return op != nullptr && op->name() == "convert" && type(op->inputs[0]).dtype == from ? op : nullptr;
}

// mul(silu(a), b), equal shapes, the silu used once   ->  one activate-and-multiply step, at the mul.
void HostEmitter::fold_activation(const graph::Op& mul) {
  if (!is_16bit_float(type(mul.outputs[0]).dtype) || !(type(mul.inputs[0]) == type(mul.inputs[1]))) return;
  for (graph::ValueId input : mul.inputs) {
    const graph::Op* producer = foldable(input);
    if (producer == nullptr || !is_activation(*producer)) continue;
    folded_[graph_.value(input).producer] = true;
    return;
  }
}

// The add of equal shapes that gives |sum|, if its value may come into being at operator |at|, where |norm| is done:
// |norm| is its first user and the others stand behind |at|.
const graph::Op* HostEmitter::foldable_sum(graph::ValueId sum, int32_t norm, int32_t at) const {
  const graph::Value& v = graph_.value(sum);
  if (v.role != graph::Role::kResult || v.type.rank() < 1) return nullptr;
  const graph::Op& add = graph_.ops[v.producer];
  if (add.name() != "add" || !(type(add.inputs[0]) == type(add.inputs[1]))) return nullptr;
  const std::vector<int32_t>& users = users_[sum];
  const bool in_order = users.front() == norm && (users.size() == 1 || users[1] > at);
  return in_order ? &add : nullptr;
}

// rms_norm(add(a, b), w), 16 bit, the norm the add's first user   ->  one step that writes both, at the norm.
void HostEmitter::fold_norm(int32_t index) {
  const graph::Op& norm = graph_.ops[index];
  if (type(norm.outputs[0]).dtype == DType::kF32) return fold_wide_norm(index);
  if (foldable_sum(norm.inputs[0], index, index) != nullptr) folded_[graph_.value(norm.inputs[0]).producer] = true;
}

// convert(rms_norm(x, convert(w, f32)), 16 bit), x in f32   ->  one step, at the last convert. Where x is
// add(convert(a, f32), r) the step writes that sum too.
void HostEmitter::fold_wide_norm(int32_t index) {
  const graph::Op& norm = graph_.ops[index];
  const graph::ValueId result = norm.outputs[0], sum = norm.inputs[0];
  if (foldable(result) == nullptr) return;
  const int32_t last = users_[result].front();
  const graph::Op& narrow = graph_.ops[last];
  const DType half = type(narrow.outputs[0]).dtype;
  if (narrow.name() != "convert" || !is_16bit_float(half)) return;
  if (foldable_convert(norm.inputs[1], half) == nullptr) return;
  folded_[index] = folded_[graph_.value(norm.inputs[1]).producer] = true;
  const graph::Op* add = foldable_sum(sum, index, last);
  if (add == nullptr) return;
  for (graph::ValueId term : add->inputs) {
    if (foldable_convert(term, half) == nullptr) continue;
    folded_[graph_.value(term).producer] = folded_[graph_.value(sum).producer] = true;
    return;
  }
}

void HostEmitter::plan_folds() {
  for (int32_t i = 0; i < static_cast<int32_t>(graph_.ops.size()); ++i) {
    const graph::Op& op = graph_.ops[i];
    // An operand that stands in both places is read twice, so it has to exist.
    if (op.inputs.size() >= 2 && op.inputs[0] == op.inputs[1]) continue;
    if (op.name() == "mul") fold_activation(op);
    if (op.name() == "rms_norm") fold_norm(i);
  }
}

}  // namespace spyre::compiler
