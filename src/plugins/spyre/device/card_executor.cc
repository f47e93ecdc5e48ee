#include "plugins/spyre/device/card_executor.h"

#include <vector>

#include "base/error.h"
#include "plugins/spyre/device/checked_calls.h"
#include "plugins/spyre/device/plan_calls.h"

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

// A buffer in the layout of another.
void copy(const CheckedMemory& memory, int32_t from, int32_t to) {
  memory.poison(to);
  if (!memory.restickify(from, to)) memory.write(to, memory.read(from));
}

void evaluate(const CheckedMemory& memory, const graph::Op& op, const DeviceOp& device_op, const CardMath& math) {
  std::vector<graph::Array> operands;
  for (const int32_t b : device_op.inputs) operands.push_back(memory.read(b));
  std::vector<const graph::Array*> inputs;
  for (const graph::Array& operand : operands) inputs.push_back(&operand);
  const graph::Type type = memory.live_type(op.outputs[0]);
  memory.write(device_op.outputs[0], math.evaluate(memory, device_op, op, inputs, type));
}

}  // namespace

void run_card_plan(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                   const Conversion& conversion, const CardMath& math) {
  check_tensors(launch);
  check_plan_calls(launch.program->graph, launch.program->card);
  const Program& program = *launch.program;
  const CheckedMemory memory(launch, pool, live_rows, conversion);
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
      checked_attention(memory, op, device_op, tables, math);
    } else {
      evaluate(memory, op, device_op, math);
    }
  }
}

}  // namespace spyre::device
