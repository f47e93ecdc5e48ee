// Phase 4: buffers and device operations.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/op_def.h"
#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/divide_work.h"
#include "plugins/spyre/compiler/lower/card_ops.h"
#include "plugins/spyre/compiler/lower/iteration.h"
#include "plugins/spyre/compiler/plan_pool.h"
#include "plugins/spyre/compiler/plan_sticks.h"
#include "plugins/spyre/compiler/view_placement.h"
#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::Placement;
using device::TensorSpec;
using graph::Op;
using graph::OpFamily;
using graph::Type;
using graph::ValueId;

TensorSpec card_spec(const Type& type, const std::vector<device::Axis>& axes, int stick) {
  std::vector<int> order;
  for (int d = 0; d < type.rank(); ++d) {
    if (d != stick) order.push_back(d);
  }
  if (type.rank() > 0) order.push_back(stick);
  return TensorSpec::with_axes(type.dtype, axes, order);
}

namespace {

class CardEmitter {
 public:
  CardEmitter(const graph::Graph& graph, const Axes& axes, const Layouts& layouts, RuleLog& log)
      : graph_(graph), axes_(axes), layouts_(layouts), log_(log), buffer_of_(graph.values.size(), -1) {
    for (const Layouts::Relay& r : layouts.relays) relay_of_[{r.op, r.operand}] = r.to_stick;
  }

  CardPlan run() {
    declare(graph_.inputs, BufferHome::kInput);
    declare(graph_.parameters, BufferHome::kParameter);
    declare(graph_.states, BufferHome::kState);
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.ops.size()); ++i) emit(i);
    copy_outputs();
    place_pool();
    plan_.estimated_ns = device::measured_costs().launch_ns.value;
    for (const DeviceOp& op : plan_.ops) plan_.estimated_ns += op.estimated_ns;
    return std::move(plan_);
  }

 private:
  const Type& type(ValueId v) const { return graph_.type(v); }
  const CardBuffer& buffer(int32_t b) const { return plan_.buffers[b]; }

  int32_t add_buffer(ValueId value, int stick, BufferHome home, int32_t index) {
    CardBuffer b;
    b.spec = card_spec(type(value), axes_[value], stick);
    b.value = value;
    b.home = home;
    b.index = index;
    b.placement = Placement::of(b.spec.layout);
    plan_.buffers.push_back(std::move(b));
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }

  void declare(const std::vector<ValueId>& values, BufferHome home) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (type(values[i]).kind == graph::TypeKind::kBatch) continue;
      buffer_of_[values[i]] = add_buffer(values[i], layouts_.stick[values[i]], home, static_cast<int32_t>(i));
    }
  }

  int32_t output_index(ValueId value) const {
    const auto found = std::find(graph_.outputs.begin(), graph_.outputs.end(), value);
    return found == graph_.outputs.end() ? -1 : static_cast<int32_t>(found - graph_.outputs.begin());
  }

  int32_t define(ValueId value) {
    const int32_t index = output_index(value);
    return buffer_of_[value] =
               add_buffer(value, layouts_.stick[value], index < 0 ? BufferHome::kPool : BufferHome::kOutput, index);
  }

  // The buffer that operand |i| of operator |op_index| is read from: re-laid where the layouts say so, once per layout.
  int32_t operand(int32_t op_index, int32_t i) {
    const ValueId value = graph_.ops[op_index].inputs[i];
    const int32_t own = buffer_of_[value];
    const auto relay = relay_of_.find({op_index, i});
    if (relay == relay_of_.end()) return own;
    const auto [found, inserted] = relaid_.emplace(std::pair(value, relay->second), -1);
    if (inserted) {
      found->second = add_buffer(value, relay->second, BufferHome::kPool, -1);
      if (!is_thin(type(value), relay->second)) {
        CardBuffer& moved = plan_.buffers.back();
        moved.spec.layout = device::restickified(buffer(own).spec.layout, relay->second);
        moved.placement = Placement::of(moved.spec.layout);
      }
      DeviceOp op{.name = "restickify", .graph_op = op_index, .inputs = {own}, .outputs = {found->second}};
      op.read_bytes = buffer(own).spec.card_bytes();
      op.write_bytes = buffer(found->second).spec.card_bytes();
      divide(op, copy_iteration(buffer(own), buffer(found->second)));
      op.estimated_ns = device::estimate_ns(
          device::measured_costs(),
          {.read_bytes = op.read_bytes, .write_bytes = op.write_bytes, .cores = cores(op), .restickify = true});
      plan_.restickified_bytes += op.write_bytes;
      plan_.ops.push_back(std::move(op));
    }
    return found->second;
  }

  void emit(int32_t index) {
    const Op& op = graph_.ops[index];
    const ValueId out = op.outputs[0];
    std::vector<int32_t> inputs;
    for (int32_t i = 0; i < static_cast<int32_t>(op.inputs.size()); ++i) inputs.push_back(operand(index, i));
    if (output_index(out) < 0 && type(out).is_tensor() && inputs[0] >= 0) {
      const auto view = view_placement(graph_, op, axes_, layouts_.stick[out], buffer(inputs[0]).placement);
      if (view.has_value()) return add_view(out, inputs[0], *view);
    }
    const int32_t result = type(out).is_state() ? buffer_of_[out] = inputs[0] : define(out);
    const std::vector<std::string> names = card_op_names(op, layouts_.stick[op.inputs[0]]);
    for (size_t i = 0; i < names.size(); ++i) {
      const bool first = i == 0, last = i + 1 == names.size();
      DeviceOp made{.name = names[i], .graph_op = index};
      if (first || last) made.inputs = inputs;
      if (last) made.outputs = {result};
      account(made, op, inputs, result, first);
      plan_.ops.push_back(std::move(made));
    }
  }

  void add_view(ValueId value, int32_t of, const Placement& placement) {
    buffer_of_[value] = add_buffer(value, layouts_.stick[value], BufferHome::kNone, -1);
    CardBuffer& b = plan_.buffers.back();
    b.view = true;
    b.base = buffer(of).view ? buffer(of).base : of;
    b.placement = placement;
  }

  // Graph outputs that no operation writes in place: inputs, parameters, and values that are given twice.
  void copy_outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i];
      const int32_t own = buffer_of_[value];
      if (buffer(own).home == BufferHome::kOutput && buffer(own).index == static_cast<int32_t>(i)) continue;
      const int32_t copy = add_buffer(value, layouts_.stick[value], BufferHome::kOutput, static_cast<int32_t>(i));
      DeviceOp op{.name = "identity", .inputs = {own}, .outputs = {copy}};
      op.read_bytes = op.write_bytes = buffer(copy).spec.card_bytes();
      divide(op, copy_iteration(buffer(own), buffer(copy)));
      op.estimated_ns = device::estimate_ns(
          device::measured_costs(), {.read_bytes = op.read_bytes, .write_bytes = op.write_bytes, .cores = cores(op)});
      plan_.ops.push_back(std::move(op));
    }
  }

  // ---- accounts

  static int64_t cores(const DeviceOp& op) { return device::core_count(op.splits); }
  const CardBuffer* operand_of(int32_t b) const { return b < 0 ? nullptr : &buffer(b); }

  // An operand's bytes, and the iteration dimensions whose splits shorten what a core touches of it.
  SpannedOperand spanned(int32_t b, const std::vector<int>& walks) const {
    const CardBuffer& from = buffer(b);
    SpannedOperand operand{"%" + graph_.value(from.value).name, from.spec.card_bytes(), {}};
    for (size_t d = 0; d < walks.size(); ++d) {
      if (walks[d] >= 0 && from.spec.axes[d].card() > 1) operand.dims.push_back(walks[d]);
    }
    return operand;
  }

  // |made| does |iteration| on the operands it has.
  void divide(DeviceOp& made, Iteration iteration, const DivisionScore& score = {}) {
    const std::string what =
        made.graph_op >= 0 ? describe(graph_, graph_.ops[made.graph_op]) : fmt::format("{} to an output", made.name);
    std::vector<SpannedOperand> operands;
    size_t next = 0;
    for (const std::vector<int32_t>* list : {&made.inputs, &made.outputs}) {
      for (const int32_t b : *list) {
        if (b >= 0 && buffer(b).home != BufferHome::kState) operands.push_back(spanned(b, iteration.walks[next]));
        ++next;
      }
    }
    made.splits = divide_work(iteration.dims, operands, what, log_, score);
    for (size_t d = 0; d < iteration.dims.size(); ++d) {
      made.split_dims.push_back(iteration.dims[d].name);
      made.extents.push_back(iteration.dims[d].extent);
      if (iteration.dims[d].reduced) made.reduced_dim = static_cast<int>(d);
    }
    made.walks = std::move(iteration.walks);
  }

  // The iteration of |op|, for a device operation that has all, some or none of its operands.
  Iteration iterate(const DeviceOp& made, const Op& op, const std::vector<int32_t>& inputs, int32_t result) const {
    std::vector<const CardBuffer*> operands;
    for (const int32_t b : inputs) operands.push_back(operand_of(b));
    Iteration iteration = iteration_of(graph_, op, operands, buffer(result));
    if (made.outputs.empty()) iteration.walks.pop_back();
    if (made.inputs.empty()) iteration.walks.erase(iteration.walks.begin(), iteration.walks.begin() + inputs.size());
    return iteration;
  }

  // Bytes of the operands are counted where they are read first, of the result where it is written.
  void account(DeviceOp& made, const Op& op, const std::vector<int32_t>& inputs, int32_t result, bool reads) {
    const CardBuffer& out = buffer(result);
    const OpFamily family = op.def->family;
    if (family == OpFamily::kCall) return account_call(made, op, inputs, result);
    for (size_t i = 0; reads && i < inputs.size(); ++i) {
      const bool table = family == OpFamily::kGather && i == 0;  // only the rows that are met are read
      made.read_bytes += table ? out.spec.card_bytes() : buffer(inputs[i]).spec.card_bytes();
    }
    if (!made.outputs.empty()) made.write_bytes = out.spec.card_bytes();
    if (family == OpFamily::kMatmul) return account_matmul(made, op, result);
    divide(made, iterate(made, op, inputs, result));
    device::OpWork work{.read_bytes = made.read_bytes, .write_bytes = made.write_bytes, .cores = cores(made)};
    const int32_t worked_on = family == OpFamily::kReduce ? made.inputs[0] : result;
    work.elements = buffer(worked_on).spec.layout.device_elements();
    made.estimated_ns = device::estimate_ns(device::measured_costs(), work);
  }

  // A state's size is not known here, nor how much of it a step reads: that is accounted per step (device/cost.h).
  void account_call(DeviceOp& made, const Op& op, const std::vector<int32_t>& inputs, int32_t result) {
    const bool attends = op.name() == "attention";
    for (int32_t b : inputs) {
      if (b >= 0 && buffer(b).home != BufferHome::kState) made.read_bytes += buffer(b).spec.card_bytes();
    }
    made.write_bytes = attends ? buffer(result).spec.card_bytes() : 2 * buffer(inputs[1]).spec.card_bytes();
    divide(made, iterate(made, op, inputs, result));
    made.estimated_ns =
        device::estimate_ns(device::measured_costs(),
                            {.read_bytes = made.read_bytes, .write_bytes = made.write_bytes, .cores = cores(made)});
  }

  void account_matmul(DeviceOp& made, const Op& op, int32_t result) {
    const CardBuffer &out = buffer(result), &x = buffer(made.inputs[0]), &w = buffer(made.inputs[1]);
    const auto rank = static_cast<int>(out.spec.axes.size());
    Iteration iteration = iterate(made, op, made.inputs, result);  // K, the rows, N
    const std::vector<int> of_weight = iteration.walks[1];
    // Operands are within what 32 cores may touch when the score is asked: 2^48 multiply-adds at most.
    auto macs = [&] {
      int64_t product = x.spec.axes.back().card();
      for (const device::Axis& axis : out.spec.axes) product *= axis.card();
      return product;
    };
    auto rows_per_core = [&](const std::vector<int64_t>& splits) {
      int64_t rows = 1;
      for (int d = 0; d + 1 < rank; ++d) rows *= out.spec.axes[d].card() / splits[d + 1];
      return rows;
    };
    auto score = [&](const std::vector<int64_t>& splits) {
      device::MatmulDivision division{.macs = macs(),
                                      .reduction_splits = splits.front(),
                                      .rows_per_core = rows_per_core(splits),
                                      .out_elements = out.spec.layout.device_elements(),
                                      .x_bytes = x.spec.card_bytes(),
                                      .w_bytes = w.spec.card_bytes(),
                                      .out_bytes = out.spec.card_bytes()};
      division.cores = device::core_count(splits);
      division.x_fanout = splits.back();
      division.w_fanout = division.cores;
      for (const int d : of_weight) division.w_fanout /= splits[d];
      return device::planner_ns(division);
    };
    divide(made, std::move(iteration), score);
    made.macs = macs();
    made.estimated_ns = device::estimate_ns(device::measured_costs(), {.macs = made.macs,
                                                                       .read_bytes = made.read_bytes,
                                                                       .write_bytes = made.write_bytes,
                                                                       .cores = cores(made),
                                                                       .rows_per_core = rows_per_core(made.splits),
                                                                       .split_reduction = made.splits.front() > 1});
  }

  // ---- the pool

  void place_pool() {
    const auto count = static_cast<int32_t>(plan_.buffers.size());
    std::vector<int32_t> first(count, -1), last(count, -1);
    auto touch = [&](int32_t b, int32_t op) {
      if (b < 0) return;
      if (buffer(b).view) b = buffer(b).base;
      if (first[b] < 0) first[b] = op;
      last[b] = op;
    };
    for (int32_t i = 0; i < static_cast<int32_t>(plan_.ops.size()); ++i) {
      // A sequence of device operations works on its operands until its last one.
      for (int32_t b : plan_.ops[i].inputs) touch(b, i);
      for (int32_t b : plan_.ops[i].outputs) touch(b, i);
    }
    std::vector<PoolRequest> requests;
    std::vector<int32_t> owners;
    for (int32_t b = 0; b < count; ++b) {
      if (buffer(b).home != BufferHome::kPool || buffer(b).view) continue;
      requests.push_back({buffer(b).spec.card_bytes(), first[b], last[b]});
      owners.push_back(b);
    }
    const PoolPlan pool = plan_pool(requests);
    for (size_t i = 0; i < owners.size(); ++i) plan_.buffers[owners[i]].pool_offset = pool.offsets[i];
    plan_.pool_bytes = pool.bytes;
  }

  const graph::Graph& graph_;
  const Axes& axes_;
  const Layouts& layouts_;
  RuleLog& log_;
  CardPlan plan_;
  std::vector<int32_t> buffer_of_;
  std::map<std::pair<int32_t, int32_t>, int> relay_of_;
  std::map<std::pair<ValueId, int>, int32_t> relaid_;
};

}  // namespace

CardPlan emit_device_ops(const graph::Graph& graph, const Axes& axes, const Layouts& layouts, RuleLog& log) {
  return CardEmitter(graph, axes, layouts, log).run();
}

}  // namespace spyre::compiler
