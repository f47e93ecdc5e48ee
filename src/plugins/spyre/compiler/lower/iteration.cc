#include "plugins/spyre/compiler/lower/iteration.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "graph/op_def.h"
#include "plugins/spyre/compiler/stick_choices.h"

namespace spyre::compiler {

using device::CardBuffer;
using graph::OpFamily;

namespace {

using Walks = std::vector<int>;

int rank_of(const CardBuffer& b) {
  return static_cast<int>(b.spec.axes.size());
}

class IterationBuilder {
 public:
  IterationBuilder(const std::vector<const CardBuffer*>& inputs, const CardBuffer& result)
      : inputs_(inputs), result_(result) {
    made_.walks.resize(inputs.size());
  }

  // A reduced dimension, in front of those of the result.
  void reduce(std::string name, int64_t card) { made_.dims.push_back({std::move(name), card, true}); }
  // The dimensions of |buffer|, by which the operation iterates.
  void iterate(const CardBuffer& buffer) {
    first_ = static_cast<int>(made_.dims.size());
    for (int d = 0; d < rank_of(buffer); ++d) {
      made_.dims.push_back({std::to_string(d), buffer.spec.axes[d].card(), false});
    }
  }
  int dim(int of_result) const { return first_ + of_result; }
  // One core needs all of it.
  void keep_whole(int of_result) { whole_ = dim(of_result); }

  Walks& walks(size_t input) { return made_.walks[input]; }
  // Dimension for dimension, aligned at the last; what is broadcast is walked by nothing.
  Walks aligned(const CardBuffer& b) const {
    Walks walks;
    const int shift = static_cast<int>(made_.dims.size()) - first_ - rank_of(b);
    for (int d = 0; d < rank_of(b); ++d) {
      const bool repeats = b.spec.axes[d].logical() == 1 && made_.dims[dim(d + shift)].extent > 1;
      walks.push_back(repeats ? -1 : dim(d + shift));
    }
    return walks;
  }
  // |exempt| is an index, whose sticks count for nothing; -1 = none.
  Iteration finish(Walks of_result, int exempt = -1) {
    made_.walks.push_back(std::move(of_result));
    std::vector<int64_t> unit(made_.dims.size(), 1);
    for (size_t i = 0; i < made_.walks.size(); ++i) {
      const CardBuffer* b = i < inputs_.size() ? inputs_[i] : &result_;
      if (b == nullptr || static_cast<int>(i) == exempt || made_.walks[i].empty()) continue;
      const int stick = b->spec.layout.stick_dim;
      if (stick < 0 || made_.walks[i][stick] < 0) continue;
      int64_t& u = unit[made_.walks[i][stick]];
      u = std::max(u, device::stick_elements(b->spec.dtype));
    }
    for (size_t d = 0; d < unit.size(); ++d) made_.dims[d].extent = (made_.dims[d].extent + unit[d] - 1) / unit[d];
    if (whole_ >= 0) drop(whole_);
    return std::move(made_);
  }

 private:
  void drop(int dim) {
    made_.dims.erase(made_.dims.begin() + dim);
    for (Walks& walks : made_.walks) {
      for (int& walk : walks) walk = walk == dim ? -1 : walk > dim ? walk - 1 : walk;
    }
  }

  const std::vector<const CardBuffer*>& inputs_;
  const CardBuffer& result_;
  Iteration made_;
  int first_ = 0, whole_ = -1;
};

Walks range(int first, int count) {
  Walks walks(static_cast<size_t>(count));
  std::iota(walks.begin(), walks.end(), first);
  return walks;
}

Iteration matmul_iteration(bool linear, IterationBuilder& b, const CardBuffer& x, const CardBuffer& w,
                           const CardBuffer& result) {
  b.reduce("K", x.spec.axes.back().card());
  b.iterate(result);
  const int rank = rank_of(result), k = 0, n = b.dim(rank - 1);
  Walks& of_x = b.walks(0) = range(b.dim(0), rank);
  of_x.back() = k;
  Walks& of_w = b.walks(1);
  for (int d = 0; d + 2 < rank_of(w); ++d) of_w.push_back(b.dim(d));
  of_w.push_back(linear ? n : k);
  of_w.push_back(linear ? k : n);
  return b.finish(range(b.dim(0), rank));
}

Iteration reduce_iteration(const graph::Op& op, IterationBuilder& b, const CardBuffer& x, const CardBuffer& result) {
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const bool keep = op.int_attr("keepdims") == 1;
  b.reduce("R", x.spec.axes[axis].card());
  b.iterate(result);
  for (int d = 0; d < rank_of(x); ++d) {
    b.walks(0).push_back(d == axis ? 0 : b.dim(keep || d < axis ? d : d - 1));
  }
  Walks out = range(b.dim(0), rank_of(result));
  if (keep) out[axis] = -1;
  return b.finish(std::move(out));
}

// Groups of dimensions that a reshape regroups are walked where they stay one dimension.
Walks reshape_walks(const graph::Type& from, const graph::Type& to, const IterationBuilder& b) {
  Walks walks(static_cast<size_t>(from.rank()), -1);
  for (const ReshapeGroup& group : reshape_groups(from, to)) {
    if (group.from.size() == 1 && group.to.size() == 1) walks[group.from[0]] = b.dim(group.to[0]);
  }
  return walks;
}

Iteration view_iteration(const graph::Graph& graph, const graph::Op& op, IterationBuilder& b,
                         const std::vector<const CardBuffer*>& inputs, const CardBuffer& result) {
  const std::string_view name = op.name();
  b.iterate(result);
  const int rank = rank_of(result);
  if (name == "transpose") {
    const auto& perm = op.ints_attr("perm");
    b.walks(0).resize(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) b.walks(0)[perm[i]] = b.dim(static_cast<int>(i));
  } else if (name == "reshape") {
    b.walks(0) = reshape_walks(graph.type(op.inputs[0]), graph.type(op.outputs[0]), b);
  } else if (name == "slice" || name == "concat") {
    const auto axis = static_cast<int>(op.int_attr("axis"));
    for (size_t i = 0; i < inputs.size(); ++i) {
      b.walks(i) = range(b.dim(0), rank);
      b.walks(i)[axis] = -1;
    }
    if (name == "concat") b.keep_whole(axis);
  } else {
    b.walks(0) = b.aligned(*inputs[0]);
  }
  return b.finish(range(b.dim(0), rank));
}

}  // namespace

Iteration iteration_of(const graph::Graph& graph, const graph::Op& op, const std::vector<const CardBuffer*>& inputs,
                       const CardBuffer& result) {
  const std::string_view name = op.name();
  IterationBuilder b(inputs, result);
  switch (op.def->family) {
    case OpFamily::kMatmul:
      return matmul_iteration(name == "linear", b, *inputs[0], *inputs[1], result);
    case OpFamily::kReduce:
      return reduce_iteration(op, b, *inputs[0], result);
    case OpFamily::kView:
      return view_iteration(graph, op, b, inputs, result);
    case OpFamily::kGather: {
      b.iterate(result);
      b.walks(0) = range(b.dim(0), rank_of(result));
      b.walks(0)[0] = -1;  // any row may be met
      b.walks(1) = {b.dim(0)};
      return b.finish(range(b.dim(0), rank_of(result)), 1);
    }
    case OpFamily::kCall: {
      const bool attends = name == "attention";
      b.iterate(*inputs[attends ? 0 : 1]);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == nullptr) continue;
        const bool state = inputs[i]->home == device::BufferHome::kState;
        if (!state) {
          b.walks(i) = range(b.dim(0), rank_of(*inputs[i]));
        } else {
          b.walks(i) = attends ? Walks{-1, -1} : Walks{b.dim(1), b.dim(2)};
        }
      }
      if (attends) b.keep_whole(2);
      return b.finish(attends ? range(b.dim(0), rank_of(result)) : Walks{b.dim(1), b.dim(2)}, attends ? -1 : 3);
    }
    default:
      break;
  }
  b.iterate(result);
  const int rank = rank_of(result);
  const bool rotates = name == "rotary" || name == "rotate_2x2";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (rotates && i == 1) {  // a rotation of each row, of a rank of its own: [rows, ...]
      b.walks(1).assign(static_cast<size_t>(rank_of(*inputs[1])), -1);
      b.walks(1)[0] = b.dim(0);
    } else {
      b.walks(i) = b.aligned(*inputs[i]);
    }
  }
  const bool along_last = op.def->family == OpFamily::kNorm || name == "softmax" || rotates;
  if (along_last && rank > 0) b.keep_whole(rank - 1);
  return b.finish(range(b.dim(0), rank));
}

void set_iteration(device::DeviceOp& op, const Iteration& iteration) {
  for (size_t d = 0; d < iteration.dims.size(); ++d) {
    op.split_dims.push_back(iteration.dims[d].name);
    op.extents.push_back(iteration.dims[d].extent);
    if (iteration.dims[d].reduced) op.reduced_dim = static_cast<int>(d);
  }
  op.splits.assign(iteration.dims.size(), 1);
  op.walks = iteration.walks;
}

Iteration copy_iteration(const CardBuffer& from, const CardBuffer& to) {
  const std::vector<const CardBuffer*> inputs{&from};
  IterationBuilder b(inputs, to);
  b.iterate(to);
  b.walks(0) = range(b.dim(0), rank_of(from));
  return b.finish(range(b.dim(0), rank_of(to)));
}

}  // namespace spyre::compiler
