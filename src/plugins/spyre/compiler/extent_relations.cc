#include "plugins/spyre/compiler/extent_relations.h"

#include <string_view>

#include "graph/op_def.h"
#include "plugins/spyre/compiler/stick_choices.h"

namespace spyre::compiler {

using device::Rule;
using graph::Op;
using graph::OpFamily;
using graph::Type;
using graph::ValueId;

namespace {

class Collector {
 public:
  Collector(const graph::Graph& graph, const Layouts& sticks)
      : graph_(graph), sticks_(sticks), value_heads_(graph.values.size(), -1) {
    for (const graph::Value& value : graph.values) {
      std::vector<int> nodes;
      for (const graph::Dim& dim : value.type.dims) nodes.push_back(add_node(dim.extent));
      out_.dim.push_back(std::move(nodes));
    }
  }

  ExtentRelations run() {
    for (index_ = 0; index_ < static_cast<int32_t>(graph_.ops.size()); ++index_) collect(graph_.ops[index_]);
    return std::move(out_);
  }

 private:
  int add_node(int64_t extent) {
    out_.extent.push_back(extent);
    return static_cast<int>(out_.extent.size()) - 1;
  }
  const Type& type(ValueId v) const { return graph_.type(v); }
  // d < 0 counts from the end.
  int node(ValueId v, int d) const { return out_.dim[v][d < 0 ? d + type(v).rank() : d]; }
  void tie(int a, int b) { out_.ties.push_back({a, b, index_}); }
  void fill(int node) { out_.filled.push_back({node, index_}); }

  // Dimensions aligned at the last; those that are broadcast stay apart.
  void tie_aligned(ValueId a, ValueId b) {
    for (int d = 1; d <= std::min(type(a).rank(), type(b).rank()); ++d) {
      if (type(a).extent(-d) == type(b).extent(-d)) tie(node(a, -d), node(b, -d));
    }
  }

  void collect(const Op& op) {
    const std::string_view name = op.name();
    const ValueId out = op.outputs[0], x = op.inputs[0];
    switch (op.def->family) {
      case OpFamily::kUnary:
      case OpFamily::kBinary:
      case OpFamily::kNorm:
        for (ValueId v : op.inputs) tie_aligned(v, out);
        return;
      case OpFamily::kReduce: {
        const auto axis = static_cast<int>(op.int_attr("axis"));
        const bool keep = op.int_attr("keepdims") == 1;
        for (int d = 0; d < type(x).rank(); ++d) {
          if (d != axis) tie(node(x, d), node(out, keep || d < axis ? d : d - 1));
        }
        return;
      }
      case OpFamily::kMatmul: {
        const ValueId w = op.inputs[1];
        const bool linear = name == "linear";
        for (int d = 0; d + 1 < type(x).rank(); ++d) tie(node(x, d), node(out, d));
        for (int d = 0; d + 2 < type(w).rank(); ++d) tie(node(x, d), node(w, d));
        tie(node(x, -1), node(w, linear ? -1 : -2));
        tie(node(out, -1), node(w, linear ? -2 : -1));
        fill(node(x, -1));
        fill(node(out, -1));
        return;
      }
      case OpFamily::kGather:
        tie(node(out, 0), node(op.inputs[1], 0));
        for (int d = 1; d < type(x).rank(); ++d) tie(node(x, d), node(out, d));
        return;
      default:
        break;
    }
    if (name == "transpose") {
      const auto& perm = op.ints_attr("perm");
      for (size_t i = 0; i < perm.size(); ++i) {
        tie(node(out, static_cast<int>(i)), node(x, static_cast<int>(perm[i])));
      }
    } else if (name == "slice") {
      collect_slice(op);
    } else if (name == "concat") {
      collect_concat(op);
    } else if (name == "broadcast") {
      tie_aligned(x, out);
    } else if (name == "reshape") {
      collect_reshape(op);
    } else if (name == "rotary" || name == "rotate_2x2") {
      collect_rotation(op);
    } else if (name == "kv_store") {
      collect_store(op);
    } else if (name == "attention") {
      collect_attention(op);
    }
  }

  void collect_slice(const Op& op) {
    const ValueId x = op.inputs[0], out = op.outputs[0];
    const auto axis = static_cast<int>(op.int_attr("axis"));
    for (int d = 0; d < type(x).rank(); ++d) {
      if (d != axis) tie(node(x, d), node(out, d));
    }
    if (sticks_.stick[out] == axis) {
      out_.parts.push_back({node(x, axis), node(out, axis), op.int_attr("start"), index_, Rule::kSliceOffStick});
    }
  }

  void collect_concat(const Op& op) {
    const ValueId out = op.outputs[0];
    const auto axis = static_cast<int>(op.int_attr("axis"));
    int64_t start = 0;
    for (ValueId part : op.inputs) {
      for (int d = 0; d < type(part).rank(); ++d) {
        if (d != axis) tie(node(part, d), node(out, d));
      }
      if (sticks_.stick[out] == axis) {
        out_.parts.push_back({node(out, axis), node(part, axis), start, index_, Rule::kConcatOffStick});
      }
      start += type(part).extent(axis);
    }
  }

  void collect_reshape(const Op& op) {
    const ValueId x = op.inputs[0], out = op.outputs[0];
    for (const ReshapeGroup& group : reshape_groups(type(x), type(out))) {
      if (group.from.size() == 1 && group.to.size() == 1) {
        tie(node(x, group.from[0]), node(out, group.to[0]));
      } else if (sticks_.stick[out] == group.to.back()) {
        if (group.from.size() == 1) {
          out_.units.push_back({node(x, group.from[0]), node(out, group.to.back()), false, index_});
        } else {
          out_.units.push_back({node(out, group.to[0]), node(x, group.from.back()), false, index_});
        }
      }
    }
  }

  void collect_rotation(const Op& op) {
    const ValueId x = op.inputs[0], table = op.inputs[1], out = op.outputs[0];
    tie_aligned(x, out);
    tie(node(x, 0), node(table, 0));
    int half = node(table, -1);
    if (op.name() == "rotary") {  // the table is [T, D]: cosines, then sines
      tie(node(x, -1), node(table, -1));
      half = add_node(type(x).extent(-1) / 2);
    }
    out_.units.push_back({node(x, -1), half, true, index_});
  }

  void collect_store(const Op& op) {
    const ValueId state = op.inputs[0], k = op.inputs[1], v = op.inputs[2], slots = op.inputs[3], out = op.outputs[0];
    for (int d : {0, 1}) {
      tie(node(state, d), node(k, d + 1));
      tie(node(out, d), node(state, d));
    }
    tie(node(state, 0), node(v, 1));
    tie(node(k, 0), node(v, 0));
    tie(node(k, 0), node(slots, 0));
    tie(value_head(state), node(v, 2));
    value_heads_[out] = value_head(state);
  }

  void collect_attention(const Op& op) {
    const ValueId q = op.inputs[0], state = op.inputs[1], out = op.outputs[0];
    tie(node(q, 0), node(out, 0));
    tie(node(q, 1), node(out, 1));
    tie(node(q, 2), node(state, 1));
    tie(node(out, 2), value_head(state));
  }

  int value_head(ValueId state) {
    if (value_heads_[state] < 0) {
      value_heads_[state] = add_node(type(state).extent(1));
      out_.heads.push_back({node(state, 1), value_heads_[state], index_});
    }
    return value_heads_[state];
  }

  const graph::Graph& graph_;
  const Layouts& sticks_;
  std::vector<int> value_heads_;
  ExtentRelations out_;
  int32_t index_ = 0;
};

}  // namespace

ExtentRelations collect_relations(const graph::Graph& graph, const Layouts& sticks) {
  return Collector(graph, sticks).run();
}

}  // namespace spyre::compiler
