#include "plugins/spyre/compiler/verify_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/op_def.h"
#include "plugins/spyre/compiler/lower/card_ops.h"

namespace spyre::compiler {

using device::Rule;
using graph::OpFamily;

int64_t RuleLog::operator[](std::string_view number) const {
  for (const device::RuleInfo& r : device::all_rules()) {
    if (r.number == number) return counts_[static_cast<size_t>(r.rule)];
  }
  return 0;
}

std::map<std::string, int64_t> RuleLog::by_number() const {
  std::map<std::string, int64_t> met;
  for (const device::RuleInfo& r : device::all_rules()) {
    const int64_t count = counts_[static_cast<size_t>(r.rule)];
    if (count > 0) met.emplace(r.number, count);
  }
  return met;
}

std::string describe(const graph::Graph& graph, const graph::Op& op) {
  if (op.outputs.empty()) return std::string(op.name());
  return fmt::format("{} %{}", op.name(), graph.value(op.outputs[0]).name);
}

namespace {

// The card's fp32 list (SPYRE_FP32_OPS), by the names of the IR. Views and copies move words of any kind.
constexpr std::array<std::string_view, 23> kFp32Ops = {
    "abs",        "add",     "concat",      "convert",    "broadcast", "div",     "exp",       "layer_norm",
    "maximum",    "minimum", "mul",         "neg",        "offset",    "reshape", "rms_norm",  "rsqrt",
    "reciprocal", "relu",    "reduce_mean", "reduce_sum", "scale",     "sigmoid", "transpose",
};
constexpr std::array<std::string_view, 4> kMoreFp32Ops = {"silu", "slice", "sqrt", "sub"};

bool works_in_fp32(std::string_view name) {
  return std::find(kFp32Ops.begin(), kFp32Ops.end(), name) != kFp32Ops.end() ||
         std::find(kMoreFp32Ops.begin(), kMoreFp32Ops.end(), name) != kMoreFp32Ops.end();
}

void verify_value(const graph::Graph& graph, const graph::Value& value, RuleLog& log) {
  const graph::Type& type = value.type;
  if (type.kind == graph::TypeKind::kBatch) return;
  const bool known =
      type.dtype == DType::kF16 || type.dtype == DType::kBF16 || type.dtype == DType::kF32 || type.dtype == DType::kI32;
  require_rule(log, Rule::kDType, known, [&] { return fmt::format("%{} is {}", value.name, type.to_string()); });
  require_rule(log, Rule::kRank, type.rank() <= 6,
               [&] { return fmt::format("%{} has {} dimensions", value.name, type.rank()); });
  const bool filled = std::all_of(type.dims.begin(), type.dims.end(), [](const graph::Dim& d) { return d.extent > 0; });
  require_rule(log, Rule::kEmptyTensor, filled, [&] { return fmt::format("%{} is {}", value.name, type.to_string()); });
  require_rule(log, Rule::kNoLowering, value.encoding == graph::Encoding::kDense, [&] {
    return fmt::format("parameter %{} has encoding {}", value.name, graph::to_string(value.encoding));
  });
  (void)graph;
}

void verify_matmul(const graph::Graph& graph, const graph::Op& op, RuleLog& log) {
  const graph::Type &x = graph.type(op.inputs[0]), &w = graph.type(op.inputs[1]);
  require_rule(log, Rule::kMatmulDType, is_16bit_float(x.dtype) && is_16bit_float(w.dtype), [&] {
    return fmt::format("{} has operands {} and {}", describe(graph, op), x.to_string(), w.to_string());
  });
  // A plain w lets the leading dimensions of x be rows and batch alike: 2 + 2.
  const int batch = w.rank() - 2, leading = x.rank() - 1 - batch;
  require_rule(log, Rule::kMatmulDims, batch <= 2 && batch + leading <= 4, [&] {
    return fmt::format("{} has {} batch and {} row dimensions", describe(graph, op), batch, leading);
  });
  const int64_t columns = graph.type(op.outputs[0]).extent(-1);
  require_rule(log, Rule::kMatmulOneColumn, columns > 1,
               [&] { return fmt::format("{} makes a single column", describe(graph, op)); });
}

void verify_index(const graph::Graph& graph, const graph::Op& op, graph::ValueId index, RuleLog& log) {
  require_rule(log, Rule::kGatherIndex, graph.value(index).role != graph::Role::kResult, [&] {
    return fmt::format("the index %{} of {} is the result of an operator", graph.value(index).name,
                       describe(graph, op));
  });
}

}  // namespace

int64_t verify_rules(CardState& state) {
  const graph::Graph& graph = state.graph;
  RuleLog& log = state.log;
  for (const graph::Value& value : graph.values) verify_value(graph, value, log);
  for (const graph::Op& op : graph.ops) {
    require_rule(log, Rule::kNoLowering, has_card_lowering(op.name()),
                 [&] { return fmt::format("{} has no device operator", describe(graph, op)); });
    if (op.def->family == OpFamily::kMatmul) {
      verify_matmul(graph, op, log);
      continue;
    }
    if (op.name() == "gather_rows") verify_index(graph, op, op.inputs[1], log);
    if (op.name() == "kv_store") verify_index(graph, op, op.inputs[3], log);
    const bool fp32 = std::any_of(op.inputs.begin(), op.inputs.end(), [&](graph::ValueId v) {
      return graph.type(v).kind != graph::TypeKind::kBatch && graph.type(v).dtype == DType::kF32;
    });
    require_rule(log, Rule::kFp32Ops, !fp32 || works_in_fp32(op.name()),
                 [&] { return fmt::format("{} has an fp32 operand", describe(graph, op)); });
  }
  return static_cast<int64_t>(graph.ops.size());
}

}  // namespace spyre::compiler
