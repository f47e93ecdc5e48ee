// Phase 4: buffers and device operations.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/op_def.h"
#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/divide_work.h"
#include "plugins/spyre/compiler/lower/card_ops.h"
#include "plugins/spyre/compiler/plan_pool.h"
#include "plugins/spyre/compiler/plan_sticks.h"
#include "plugins/spyre/compiler/view_placement.h"
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
      divide(op, iteration(found->second), {});
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
      account(made, op, first ? inputs : std::vector<int32_t>(), result, last);
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
      divide(op, iteration(copy), {});
      op.estimated_ns = device::estimate_ns(
          device::measured_costs(), {.read_bytes = op.read_bytes, .write_bytes = op.write_bytes, .cores = cores(op)});
      plan_.ops.push_back(std::move(op));
    }
  }

  // ---- accounts

  static int64_t cores(const DeviceOp& op) {
    int64_t n = 1;
    for (int64_t split : op.splits) n *= split;
    return n;
  }

  std::vector<IterationDim> iteration(int32_t b) const {
    const TensorSpec& spec = buffer(b).spec;
    std::vector<IterationDim> dims;
    for (size_t d = 0; d < spec.axes.size(); ++d) {
      const bool stick = static_cast<int>(d) == spec.layout.stick_dim;
      const int64_t e = device::stick_elements(spec.dtype), card = spec.axes[d].card();
      dims.push_back({fmt::format("{}", d), stick ? (card + e - 1) / e : card, false});
    }
    return dims;
  }

  // An operand whose dimensions are the first or last ones of the iteration.
  SpannedOperand spanned(int32_t b, int shift) const {
    const CardBuffer& from = buffer(b);
    SpannedOperand operand{"%" + graph_.value(from.value).name, from.spec.card_bytes(), {}};
    for (int d = 0; d < static_cast<int>(from.spec.axes.size()); ++d) {
      if (d + shift >= 0 && from.spec.axes[d].card() > 1) operand.dims.push_back(d + shift);
    }
    return operand;
  }

  void divide(DeviceOp& op, const std::vector<IterationDim>& dims, const std::vector<SpannedOperand>& operands,
              const DivisionScore& score = {}) {
    const std::string what =
        op.graph_op >= 0 ? describe(graph_, graph_.ops[op.graph_op]) : fmt::format("{} to an output", op.name);
    op.splits = divide_work(dims, operands, what, log_, score);
    for (const IterationDim& dim : dims) op.split_dims.push_back(dim.name);
  }

  // Bytes of the operands are counted where they are read first, of the result where it is written.
  void account(DeviceOp& made, const Op& op, const std::vector<int32_t>& reads, int32_t result, bool writes) {
    const CardBuffer& out = buffer(result);
    const OpFamily family = op.def->family;
    if (family == OpFamily::kCall) return account_call(made, op, reads, result);
    for (size_t i = 0; i < reads.size(); ++i) {
      const bool table = family == OpFamily::kGather && i == 0;  // only the rows that are met are read
      made.read_bytes += table ? out.spec.card_bytes() : buffer(reads[i]).spec.card_bytes();
    }
    if (writes) made.write_bytes = out.spec.card_bytes();
    if (family == OpFamily::kMatmul) return account_matmul(made, result);
    const auto rank = static_cast<int>(out.spec.axes.size());
    std::vector<SpannedOperand> operands{spanned(result, 0)};
    for (size_t i = 0; i < reads.size(); ++i) {
      // Splits of the result divide an operand only where it has the same dimensions.
      const bool table = family == OpFamily::kGather && i == 0;
      if (family != OpFamily::kBinary && family != OpFamily::kUnary && !table) continue;
      SpannedOperand operand = spanned(reads[i], rank - static_cast<int>(buffer(reads[i]).spec.axes.size()));
      if (table) std::erase(operand.dims, 0);  // any row of the table may be met
      operands.push_back(std::move(operand));
    }
    divide(made, iteration(result), operands);
    device::OpWork work{.read_bytes = made.read_bytes, .write_bytes = made.write_bytes, .cores = cores(made)};
    const int32_t worked_on = family == OpFamily::kReduce ? made.inputs[0] : result;
    work.elements = buffer(worked_on).spec.layout.device_elements();
    made.estimated_ns = device::estimate_ns(device::measured_costs(), work);
  }

  // A state's size is not known here, nor how much of it a step reads: that is accounted per step (device/cost.h).
  void account_call(DeviceOp& made, const Op& op, const std::vector<int32_t>& reads, int32_t result) {
    const bool attends = op.name() == "attention";
    const int32_t rows = made.inputs[attends ? 0 : 1];
    for (int32_t b : reads) {
      if (b >= 0 && buffer(b).home != BufferHome::kState) made.read_bytes += buffer(b).spec.card_bytes();
    }
    made.write_bytes = attends ? buffer(result).spec.card_bytes() : 2 * buffer(rows).spec.card_bytes();
    divide(made, iteration(rows), {});
    made.estimated_ns =
        device::estimate_ns(device::measured_costs(),
                            {.read_bytes = made.read_bytes, .write_bytes = made.write_bytes, .cores = cores(made)});
  }

  void account_matmul(DeviceOp& made, int32_t result) {
    const CardBuffer &out = buffer(result), &x = buffer(made.inputs[0]), &w = buffer(made.inputs[1]);
    const auto rank = static_cast<int>(out.spec.axes.size());
    std::vector<IterationDim> dims = iteration(result);  // ..., N; then K
    dims.push_back({"K", x.spec.axes.back().card() / 64, true});
    SpannedOperand left = spanned(made.inputs[0], 0);
    for (int& d : left.dims) d = d == rank - 1 ? rank : d;
    SpannedOperand weight{"%" + graph_.value(w.value).name, w.spec.card_bytes(), {rank - 1, rank}};
    for (int d = 0; d + 2 < static_cast<int>(w.spec.axes.size()); ++d) weight.dims.push_back(d);
    // Operands are within what 32 cores may touch when the score is asked: 2^48 multiply-adds at most.
    auto macs = [&] {
      int64_t product = x.spec.axes.back().card();
      for (const device::Axis& axis : out.spec.axes) product *= axis.card();
      return product;
    };
    auto rows_per_core = [&](const std::vector<int64_t>& splits) {
      int64_t rows = 1;
      for (int d = 0; d + 1 < rank; ++d) rows *= out.spec.axes[d].card() / splits[d];
      return rows;
    };
    auto score = [&](const std::vector<int64_t>& splits) {
      device::MatmulDivision division{.macs = macs(),
                                      .reduction_splits = splits.back(),
                                      .rows_per_core = rows_per_core(splits),
                                      .out_elements = out.spec.layout.device_elements(),
                                      .x_bytes = x.spec.card_bytes(),
                                      .w_bytes = w.spec.card_bytes(),
                                      .out_bytes = out.spec.card_bytes()};
      for (int64_t split : splits) division.cores *= split;
      division.x_fanout = splits[rank - 1];
      division.w_fanout = division.cores;
      for (int d : weight.dims) division.w_fanout /= splits[d];
      return device::planner_ns(division);
    };
    divide(made, dims, {spanned(result, 0), left, weight}, score);
    made.macs = macs();
    made.estimated_ns = device::estimate_ns(device::measured_costs(), {.macs = made.macs,
                                                                       .read_bytes = made.read_bytes,
                                                                       .write_bytes = made.write_bytes,
                                                                       .cores = cores(made),
                                                                       .rows_per_core = rows_per_core(made.splits),
                                                                       .split_reduction = made.splits.back() > 1});
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
