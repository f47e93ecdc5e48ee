#include "plugins/spyre/device/checked_executor.h"

#include "base/error.h"
#include "graph/op_def.h"
#include "plugins/spyre/device/checked_calls.h"
#include "plugins/spyre/device/checked_memory.h"

namespace spyre::device {
namespace {

void check_tensors(const Launch& launch) {
  const Program& program = *launch.program;
  const graph::Graph& graph = program.graph;
  for (const CardBuffer& b : program.card.buffers) {
    const auto index = static_cast<size_t>(b.index);
    if (b.home == BufferHome::kInput) {
      check_store(launch.inputs.at(index).get(), b.spec, "input %" + graph.value(b.value).name);
    } else if (b.home == BufferHome::kParameter) {
      check_store(launch.parameters.at(index).get(), b.spec, "parameter %" + graph.value(b.value).name);
    } else if (b.home == BufferHome::kOutput) {
      check_store(launch.outputs.at(index).get(), b.spec, "output %" + graph.value(b.value).name);
    }
  }
}

void evaluate(const CheckedMemory& memory, const graph::Op& op, const DeviceOp& device_op, DotOrder bf16_order) {
  std::vector<graph::Array> operands;
  for (int32_t b : device_op.inputs) operands.push_back(memory.read(b));
  std::vector<const graph::Array*> inputs;
  for (const graph::Array& operand : operands) inputs.push_back(&operand);
  const std::vector<graph::KvPages*> states(inputs.size(), nullptr);
  const std::vector<graph::Type> types{memory.live_type(op.outputs[0])};
  graph::EvalContext context{op, inputs, states, nullptr, types, {}, graph::EvalMode::kExact, bf16_order};
  op.def->evaluate(context);
  memory.write(device_op.outputs[0], context.outputs.at(0));
}

// A buffer in the layout of another.
void copy(const CheckedMemory& memory, int32_t from, int32_t to) {
  memory.poison(to);
  if (!memory.restickify(from, to)) memory.write(to, memory.read(from));
}

}  // namespace

void run_checked(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                 DotOrder bf16_order) {
  check_tensors(launch);
  const Program& program = *launch.program;
  const CheckedMemory memory(launch, pool, live_rows);
  for (const DeviceOp& device_op : program.card.ops) {
    if (device_op.outputs.empty()) continue;  // kept in scratchpad: part of the operation that follows
    if (device_op.graph_op < 0 || device_op.name == "restickify") {
      copy(memory, device_op.inputs[0], device_op.outputs[0]);
      continue;
    }
    const graph::Op& op = program.graph.ops[device_op.graph_op];
    if (op.name() == "kv_store") {
      checked_kv_store(memory, device_op, tables);
      continue;
    }
    memory.poison(device_op.outputs[0]);
    if (op.name() == "attention") {
      checked_attention(memory, op, device_op, tables, bf16_order);
    } else {
      evaluate(memory, op, device_op, bf16_order);
    }
  }
}

}  // namespace spyre::device
