#include "graph/interpreter.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/vector_math.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

constexpr auto kCode = ErrorCode::kInvalidArgument;

template <typename Bound>
void check_count(std::string_view what, const std::vector<ValueId>& ids, const std::vector<Bound>& bound) {
  if (ids.size() != bound.size())
    throw_error(kCode, "the graph has {} {}, {} are bound", ids.size(), what, bound.size());
}

void check_type(const Graph& graph, ValueId id, const Type& bound) {
  if (bound != graph.type(id)) {
    throw_error(kCode, "%{} is {}, bound is {}", graph.values[id].name, graph.type(id).to_string(), bound.to_string());
  }
}

// One run: the values computed so far and how often each is still to be read.
class Run {
 public:
  Run(const Graph& graph, const Bindings& bindings, EvalMode mode, DotOrder bf16_order, bool keep_all)
      : graph_(graph),
        bindings_(bindings),
        mode_(mode),
        bf16_order_(bf16_order),
        keep_all_(keep_all),
        arrays_(graph.values.size()),
        states_(graph.values.size(), nullptr),
        reads_(graph.values.size(), 0) {
    bind();
    for (const Op& op : graph.ops) {
      for (const ValueId id : op.inputs) ++reads_[id];
    }
    for (const ValueId id : graph.outputs) ++reads_[id];
  }

  void execute() {
    for (const Op& op : graph_.ops) evaluate(op);
  }

  std::vector<Array> outputs() const {
    std::vector<Array> result;
    for (const ValueId id : graph_.outputs) result.push_back(arrays_[id]);
    return result;
  }
  std::vector<Array> take_arrays() { return std::move(arrays_); }

 private:
  void bind() {
    check_count("inputs", graph_.inputs, bindings_.inputs);
    check_count("parameters", graph_.parameters, bindings_.parameters);
    check_count("states", graph_.states, bindings_.states);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId id = graph_.inputs[i];
      if (graph_.type(id).kind == TypeKind::kBatch) {
        if (bindings_.batch == nullptr) throw_error(kCode, "%{} needs a batch, none is bound", graph_.values[id].name);
        continue;
      }
      check_type(graph_, id, bindings_.inputs[i].type());
      arrays_[id] = bindings_.inputs[i];
    }
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const ValueId id = graph_.parameters[i];
      if (graph_.values[id].encoding != Encoding::kDense) {
        throw_error(ErrorCode::kUnsupported, "parameter %{} has encoding {}: only dense is built",
                    graph_.values[id].name, to_string(graph_.values[id].encoding));
      }
      check_type(graph_, id, bindings_.parameters[i].type());
      arrays_[id] = bindings_.parameters[i];
    }
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      const ValueId id = graph_.states[i];
      if (bindings_.states[i] == nullptr) throw_error(kCode, "state %{} is not bound", graph_.values[id].name);
      check_type(graph_, id, bindings_.states[i]->type);
      states_[id] = bindings_.states[i];
    }
  }

  void evaluate(const Op& op) {
    std::vector<const Array*> inputs;
    std::vector<KvPages*> states;
    KvPages* replaced = nullptr;
    for (const ValueId id : op.inputs) {
      const bool tensor = graph_.type(id).is_tensor();
      inputs.push_back(tensor ? &arrays_[id] : nullptr);
      states.push_back(states_[id]);
      if (states_[id] != nullptr) replaced = states_[id];
    }
    std::vector<Type> types;
    for (const ValueId id : op.outputs) types.push_back(graph_.type(id));
    EvalContext context{op, inputs, states, bindings_.batch, types, {}, mode_, bf16_order_};
    op.def->evaluate(context);
    SPYRE_CHECK(context.outputs.size() == op.outputs.size(), "{}", op.name());
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const ValueId id = op.outputs[i];
      if (types[i].is_state()) states_[id] = replaced;  // one cache, changed in place: the new value is the same pages
      if (keep_all_ || reads_[id] > 0) arrays_[id] = std::move(context.outputs[i]);
    }
    for (const ValueId id : op.inputs) {
      if (--reads_[id] == 0 && !keep_all_) arrays_[id] = Array();
    }
  }

  const Graph& graph_;
  const Bindings& bindings_;
  const EvalMode mode_;
  const DotOrder bf16_order_;
  const bool keep_all_;
  std::vector<Array> arrays_;
  std::vector<KvPages*> states_;
  std::vector<int32_t> reads_;
};

}  // namespace

float EvalContext::store(DType dtype, float x) const {
  return mode == EvalMode::kExact ? round_to(dtype, x) : x;
}

std::vector<Array> Interpreter::run(const Graph& graph, const Bindings& bindings, std::vector<Array>* keep) const {
  const ScopedFlushDenormals flush;
  Run run(graph, bindings, mode_, bf16_order_, keep != nullptr);
  run.execute();
  std::vector<Array> outputs = run.outputs();
  if (keep != nullptr) *keep = run.take_arrays();
  return outputs;
}

}  // namespace spyre::graph
