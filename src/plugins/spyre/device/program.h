// A compiled program: one graph at one bucket, as the card would run it and as the host runs it. The artifact that
// equal blocks share. Immutable, owned by the compiler's cache; owns no memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/pass.h"
#include "plugins/spyre/device/host_plan.h"
#include "plugins/spyre/device/lx.h"
#include "plugins/spyre/device/placement.h"
#include "plugins/spyre/device/rules.h"
#include "plugins/spyre/device/tensor.h"

namespace spyre::device {

// One operation on the card. Operands are buffers of the card plan.
struct DeviceOp {
  std::string name;  // the card's operator: "batchmatmul", "add", "restickify", "attention", ...
  int32_t graph_op =
      -1;  // what it comes from; -1: a copy of a value to a graph output. A restickify names its consumer
  std::vector<int32_t> inputs;   // buffers, parallel to the operands of the graph operator; -1 for a batch
  std::vector<int32_t> outputs;  // none: what it makes stays in scratchpad for the next operation of the same graph_op
  // The iteration and its division over the cores (core_map.h). A dimension in which an operand holds its stick counts
  // sticks; a reduced one comes first.
  std::vector<std::string> split_dims;  // names: "0", "1", ... of the result; "K" of a matmul; "R" of a reduction
  std::vector<int64_t> extents;         // parallel to the names
  std::vector<int64_t> splits;          // each divides its extent; product <= 32
  int reduced_dim = -1;                 // whose split makes partial results that neighbouring cores add up
  // Per operand (inputs, then outputs) and dimension of it: the iteration dimension that walks it, or -1 where every
  // core may touch all of it (broadcast, looked up by an index, cut in parts).
  std::vector<std::vector<int>> walks;
  int64_t macs = 0;                         // multiply-accumulates on card extents
  int64_t read_bytes = 0, write_bytes = 0;  // of device memory
  int64_t lx_bytes = 0;  // read and written in the scratchpad instead, in a plan that compiler::plan_lx() has been over
  double estimated_ns = 0;
};

enum class BufferHome : uint8_t { kInput, kParameter, kState, kOutput, kPool, kNone };

struct CardBuffer {
  TensorSpec spec;
  graph::ValueId value = graph::kNoValue;  // the graph value it holds
  BufferHome home = BufferHome::kPool;
  int32_t index = 0;         // of the input, parameter, state or output
  int64_t pool_offset = -1;  // in the program's pool (HBM), 128-byte aligned
  bool view = false;         // shares the memory of |base|: a slice, a transpose, a regrouping of whole sticks
  int32_t base = -1;         // a buffer of its own, never a view
  int32_t relaid_from = -1;  // the buffer that a restickify moves here
  Placement placement;       // in its own memory, or in that of |base|
  LxVerdict lx;              // in a plan that compiler::plan_lx() has been over
};

struct CardPlan {
  std::vector<CardBuffer> buffers;
  std::vector<DeviceOp> ops;
  int64_t pool_bytes = 0;
  int64_t pool_lower_bound = 0;  // the most bytes of it that are live at once
  double estimated_ns = 0;
  int64_t restickified_bytes = 0;
  LxSummary lx;
  std::vector<LxCopy> lx_copies;
};

// What one phase of the card side did to a program, and how long it took.
struct CardPassRecord {
  std::string_view name;
  std::chrono::nanoseconds time{0};
  int64_t count = 0;
  std::string_view unit;  // of |count|
};

struct Program {
  std::string key;     // canonical graph text: what makes two blocks equal
  graph::Graph graph;  // after the passes
  std::vector<graph::PassRecord> passes;
  std::vector<CardPassRecord> card_passes;
  std::vector<TensorSpec> input_specs, parameter_specs, state_specs, output_specs;
  std::vector<HostForm> parameter_forms;
  CardPlan card;
  HostPlan host;
  std::map<std::string, int64_t> rules_met;  // rule number -> how often its check was passed
};

// One run of a program. Tensors are parallel to the graph's inputs, parameters, states and outputs; a batch input and
// an absent state are null.
struct Launch {
  const Program* program = nullptr;
  std::vector<DeviceTensor> inputs, parameters, states, outputs;
};

}  // namespace spyre::device
