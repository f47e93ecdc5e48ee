#include "plugins/spyre/compiler/labelled_plan.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plugins/spyre/compiler/plan_pool.h"
#include "plugins/spyre/device/card_functions.h"
#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/device/plan_calls.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::DeviceOp;
using device::OpWork;
using device::TensorSpec;

int32_t LabelledPlan::add(std::string name, std::string labels, TensorSpec spec, BufferHome home) {
  SPYRE_CHECK(labels.size() == spec.axes.size(), "{}: labels {} of {} dimensions", name, labels, spec.axes.size());
  CardBuffer b;
  b.home = home;
  b.placement = device::Placement::of(spec.layout);
  b.spec = std::move(spec);
  plan_.buffers.push_back(std::move(b));
  names_.push_back(std::move(name));
  labels_.push_back(std::move(labels));
  return static_cast<int32_t>(plan_.buffers.size()) - 1;
}

int32_t LabelledPlan::tensor(std::string name, const std::string& labels, DType dtype, BufferHome home,
                             bool rows_inside) {
  std::vector<device::Axis> axes;
  for (const char label : labels) axes.emplace_back(extent_of(label));
  const int rank = static_cast<int>(labels.size());
  std::vector<int> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  // The dimension named first lies next to the stick.
  if (rows_inside) std::rotate(order.begin(), order.begin() + rank - 2, order.begin() + rank - 1);
  return add(std::move(name), labels, TensorSpec::with_axes(dtype, std::move(axes), order), home);
}

int32_t LabelledPlan::sparse(std::string name, const std::string& labels, DType dtype) {
  std::vector<device::Axis> axes;
  for (const char label : labels) axes.emplace_back(extent_of(label));
  std::vector<int> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.end() - 1, order.end());
  order.push_back(-1);
  return add(std::move(name), labels, TensorSpec::with_axes(dtype, std::move(axes), order), BufferHome::kPool);
}

int32_t LabelledPlan::index(std::string name, const std::vector<int64_t>& extents) {
  return add(std::move(name), std::string(extents.size(), '-'), TensorSpec::plain(DType::kI32, extents),
             BufferHome::kInput);
}

int32_t LabelledPlan::part(int32_t of, int64_t at, const std::string& labels) {
  const CardBuffer& base = plan_.buffers[of];
  CardBuffer b;
  b.spec = TensorSpec::with_axes(base.spec.dtype, {base.spec.axes.begin() + 1, base.spec.axes.end()});
  b.home = BufferHome::kNone;
  b.view = true;
  b.base = of;
  b.placement = base.placement.sliced(0, at).dropped(0);
  plan_.buffers.push_back(std::move(b));
  names_.push_back(fmt::format("{} [{}]", names_[of], at));
  labels_.push_back(labels);
  return static_cast<int32_t>(plan_.buffers.size()) - 1;
}

int64_t LabelledPlan::bytes(int32_t buffer) const {
  return plan_.buffers[buffer].spec.card_bytes();
}
int64_t LabelledPlan::elements(int32_t buffer) const {
  return plan_.buffers[buffer].spec.layout.device_elements();
}

// A label that some operand holds in its stick counts whole sticks.
LabelledPlan::Shape LabelledPlan::iterate(const std::vector<Operand>& operands, const std::string& over,
                                          char reduced) const {
  Shape shape;
  if (reduced != 0) shape.labels.push_back(reduced);
  for (const char label : over) {
    if (label != '-') shape.labels.push_back(label);
  }
  for (const char label : shape.labels) {
    int64_t unit = 1;
    for (const Operand& o : operands) {
      const device::Placement& at = plan_.buffers[o.buffer].placement;
      const bool in_stick = at.stick_dim >= 0 && o.labels[at.stick_dim] == label;
      if (in_stick) unit = std::max(unit, at.stick_elements);
    }
    const int64_t extent = extent_of(label);
    shape.dims.push_back({std::string(1, label), (extent + unit - 1) / unit, label == reduced});
  }
  return shape;
}

// As the phases of work division do it.
void LabelledPlan::divide(DeviceOp& op, const DivisionScore& score) {
  const SpanReduction spans = reduce_spans_of(plan_, op, cores_);
  require_rule(log_, device::Rule::kSpan, spans.too_long < 0, [&] {
    return fmt::format("{}: a core would touch {} bytes of {} after splitting it as far as it goes", op.name,
                       spans.span, names_[static_cast<size_t>(spans.too_long)]);
  });
  if (score && !spans.split) {
    op.splits = cheapest_division(op.extents, cores_, score);
  } else {
    divide_largest(op, cores_);
  }
}

// Moves that the plan tells apart for their cost (transpose, broadcast, indexcopy) are copies to the card.
void LabelledPlan::check_call(const DeviceOp& op) {
  if (device::find_card_function(op.name) == nullptr) return;
  device::CardCall call{.name = op.name, .what = op.name + " of " + names_[static_cast<size_t>(op.outputs[0])]};
  const auto operand = [&](int32_t b, size_t walked) {
    const CardBuffer& buffer = plan_.buffers[b];
    return device::operand_of(names_[static_cast<size_t>(b)], buffer.spec, buffer.placement, op.walks[walked]);
  };
  for (size_t i = 0; i < op.inputs.size(); ++i) call.inputs.push_back(operand(op.inputs[i], i));
  call.outputs.push_back(operand(op.outputs[0], op.inputs.size()));
  if (op.name == "gather") call.inputs[1].index = true;
  if (op.reduced_dim >= 0) call.reduced = {op.reduced_dim};
  call.cores = static_cast<int>(device::core_count(op.splits));
  check_card_call(call, [&](device::Rule rule) { ++log_[rule]; });
}

DeviceOp& LabelledPlan::emit(const char* name, std::vector<Operand> inputs, Operand output, const std::string& over,
                             char reduced, const DivisionScore& score) {
  DeviceOp op{.name = name};
  std::vector<Operand> operands = std::move(inputs);
  for (const Operand& o : operands) op.inputs.push_back(o.buffer);
  operands.push_back(std::move(output));
  op.outputs = {operands.back().buffer};
  const Shape shape = iterate(operands, over, reduced);
  for (const Operand& o : operands) {
    std::vector<int> walks;
    // A dimension of one element is no broadcast: every core has the part that there is.
    for (const char label : o.labels) walks.push_back(label == '-' ? -1 : shape.find(label));
    op.walks.push_back(std::move(walks));
  }
  for (const IterationDim& dim : shape.dims) {
    op.split_dims.push_back(dim.name);
    op.extents.push_back(dim.extent);
  }
  op.splits.assign(op.extents.size(), 1);
  if (reduced != 0) op.reduced_dim = 0;
  divide(op, score);
  check_call(op);
  plan_.ops.push_back(std::move(op));
  works_.push_back({.cores = device::core_count(plan_.ops.back().splits)});
  return plan_.ops.back();
}

// Of divisions that the planner's model finds equal (memory bounds most of attention's products), the one that computes
// faster; of those, the one whose cores share the least.
DivisionScore LabelledPlan::product_score(const std::vector<Operand>& inputs, const Operand& output,
                                          char reduced) const {
  const std::string of_x = inputs[0].labels, of_y = inputs[1].labels;
  device::MatmulDivision whole{.macs = 1, .rows_per_core = 1};
  whole.batched = true;
  whole.out_elements = elements(output.buffer);
  whole.x_bytes = bytes(inputs[0].buffer);
  whole.w_bytes = bytes(inputs[1].buffer);
  whole.out_bytes = bytes(output.buffer);
  const std::string labels = reduced + output.labels;
  for (const char label : labels) whole.macs *= extent_of(label);
  return [this, whole, labels, of_x, of_y](const std::vector<int64_t>& splits) {
    device::MatmulDivision d = whole;
    d.cores = device::core_count(splits);
    d.reduction_splits = splits[0];
    d.x_fanout = d.w_fanout = d.cores;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool in_x = of_x.find(labels[i]) != std::string::npos, in_y = of_y.find(labels[i]) != std::string::npos;
      if (in_x) d.x_fanout /= splits[i];
      if (in_y) d.w_fanout /= splits[i];
      if (in_x && !in_y) d.rows_per_core *= extent_of(labels[i]) / splits[i];
    }
    device::MatmulDivision computing = d;
    computing.x_bytes = computing.w_bytes = computing.out_bytes = 0;
    const auto shared = static_cast<double>(d.x_bytes * d.x_fanout + d.w_bytes * d.w_fanout);
    return device::planner_ns(d) + 1e-6 * device::planner_ns(computing) + 1e-12 * shared;
  };
}

int32_t LabelledPlan::op(const char* name, const std::vector<int32_t>& inputs, int32_t output, char reduced) {
  std::vector<Operand> operands;
  for (const int32_t b : inputs) operands.push_back({b, labels_[b]});
  return op(name, std::move(operands), {output, labels_[output]}, reduced);
}

int32_t LabelledPlan::op(const char* name, std::vector<Operand> inputs, Operand output, char reduced) {
  const std::string_view kind = name;
  const int32_t first = inputs[0].buffer, result = output.buffer;
  int64_t read = 0;
  for (const Operand& o : inputs) read += bytes(o.buffer);
  DivisionScore score;
  OpWork work;
  if (kind == "batchmatmul") {
    score = product_score(inputs, output, reduced);
    work = product_work(inputs, output, reduced);
  } else if (reduced != 0) {
    work.elements = elements(first);
    work.kind = device::WorkKind::kReduction;
    work.reduced_rows = plan_.buffers[result].spec.logical_elements();
  } else if (kind == "transpose") {
    work.kind = device::WorkKind::kTranspose;
  } else if (kind == "broadcast") {
    work.kind = device::WorkKind::kBroadcast;
  } else if (kind != "identity") {
    work.elements = elements(result);
  }
  const std::string over = output.labels, of_x = inputs[0].labels,
                    of_y = inputs.size() > 1 ? inputs[1].labels : std::string();
  DeviceOp& made = emit(name, std::move(inputs), std::move(output), over, reduced, score);
  made.read_bytes = read;
  made.write_bytes = bytes(result);
  made.macs = work.macs;
  work.cores = works_.back().cores;
  if (kind == "batchmatmul") {
    work.rows_per_core = 1;
    for (size_t i = 0; i < made.split_dims.size(); ++i) {
      const char label = made.split_dims[i][0];
      const bool row = of_x.find(label) != std::string::npos && of_y.find(label) == std::string::npos;
      if (row) work.rows_per_core *= extent_of(label) / made.splits[i];
    }
    work.split_reduction = made.splits[0] > 1;
  }
  works_.back() = work;
  return result;
}

// The multiply-adds of a product; and that its matrices are no more than the card's product takes (L-19).
OpWork LabelledPlan::product_work(const std::vector<Operand>& inputs, const Operand& output, char reduced) const {
  OpWork work{.macs = extent_of(reduced)};
  int64_t batch = 0, rows = 0;
  for (const char label : output.labels) {
    work.macs *= extent_of(label);
    const bool in_x = inputs[0].labels.find(label) != std::string::npos;
    const bool in_y = inputs[1].labels.find(label) != std::string::npos;
    batch += in_x && in_y;
    rows += in_x && !in_y;
    if (in_x && in_y) work.batch *= extent_of(label);  // outermost: the full rate
  }
  require_rule(log_, device::Rule::kMatmulDims, batch <= 2 && rows <= 2, [&] {
    return fmt::format("a product of {} and {} has {} batch and {} row dimensions", inputs[0].labels, inputs[1].labels,
                       batch, rows);
  });
  return work;
}

void LabelledPlan::gather(Operand table, Operand index, Operand output) {
  const int64_t found = bytes(output.buffer), entries = bytes(index.buffer);
  const std::string indexed = index.labels, over = output.labels;
  // A score of divisions: entries, then cores.
  const DivisionScore score = [labels = iterate({table, index, output}, over, 0).labels,
                               indexed](const std::vector<int64_t>& splits) {
    int64_t by_entry = 1;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (indexed.find(labels[i]) != std::string::npos) by_entry *= splits[i];
    }
    return -static_cast<double>(by_entry * 2 * device::kCores + device::core_count(splits));
  };
  DeviceOp& made = emit("gather", {std::move(table), std::move(index)}, std::move(output), over, 0, score);
  made.read_bytes = found + entries;
  made.write_bytes = found;
}

void LabelledPlan::restickify(int32_t from, int32_t to) {
  DeviceOp& made = emit("restickify", {{from, labels_[from]}}, {to, labels_[to]}, labels_[to], 0, {});
  made.read_bytes = bytes(from);
  made.write_bytes = bytes(to);
  works_.back().kind = device::WorkKind::kRestickify;
  works_.back().run_bytes = device::run_bytes(plan_, made, 1);
  plan_.restickified_bytes += bytes(to);
}

void LabelledPlan::index_copy(Operand source, Operand index, Operand table) {
  const int64_t moved = bytes(source.buffer), entries = bytes(index.buffer);
  const std::string over = source.labels;
  DeviceOp& made = emit("indexcopy", {std::move(source), std::move(index)}, std::move(table), over, 0, {});
  made.read_bytes = moved + entries;
  made.write_bytes = moved;
}

void LabelledPlan::finish(const LxOptions& lx, device::CardPlan& plan, std::vector<std::string>& names,
                          std::vector<OpWork>& works) {
  plan_lx(plan_, lx);
  place_pool();
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    DeviceOp& op = plan_.ops[i];
    works_[i].read_bytes = op.read_bytes;
    works_[i].write_bytes = op.write_bytes;
    works_[i].scratch_bytes = op.lx_bytes;
    op.estimated_ns = device::estimate_ns(device::measured_costs(), works_[i]);
  }
  plan = std::move(plan_);
  names = std::move(names_);
  works = std::move(works_);
}

// What does not live in the scratchpad has to lie in device memory.
void LabelledPlan::place_pool() {
  std::vector<PoolRequest> requests(plan_.buffers.size());
  for (int32_t i = 0; i < static_cast<int32_t>(plan_.ops.size()); ++i) {
    const DeviceOp& op = plan_.ops[i];
    for (const std::vector<int32_t>* list : {&op.inputs, &op.outputs}) {
      for (int32_t b : *list) {
        if (plan_.buffers[b].view) b = plan_.buffers[b].base;
        PoolRequest& r = requests[b];
        if (r.bytes == 0) r = {bytes(b), i, i};
        r.last = i;
      }
    }
  }
  std::vector<PoolRequest> wanted;
  std::vector<int32_t> owners;
  for (int32_t b = 0; b < static_cast<int32_t>(requests.size()); ++b) {
    const CardBuffer& buffer = plan_.buffers[b];
    if (buffer.home != BufferHome::kPool || buffer.lx.resident()) continue;
    wanted.push_back(requests[b]);
    owners.push_back(b);
  }
  const PoolPlan pool = plan_pool(wanted);
  for (size_t i = 0; i < owners.size(); ++i) plan_.buffers[owners[i]].pool_offset = pool.offsets[i];
  plan_.pool_bytes = pool.bytes;
}

}  // namespace spyre::compiler
