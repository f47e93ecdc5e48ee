#include "nn/tracer.h"

#include <algorithm>

#include "base/error.h"
#include "nn/layers/attention.h"

namespace spyre::nn {

struct Tracer::Recording {
  Recording(const Module* block, std::string name) : block(block), builder(std::move(name)) {}

  int32_t output_index(graph::ValueId id) {
    const auto found = std::find(outputs.begin(), outputs.end(), id);
    if (found != outputs.end()) return static_cast<int32_t>(found - outputs.begin());
    outputs.push_back(id);
    return static_cast<int32_t>(outputs.size()) - 1;
  }

  const Module* block;
  graph::Builder builder;
  std::vector<InputSource> inputs;
  std::vector<const Parameter*> parameters;
  std::vector<const Attention*> states;
  std::vector<graph::ValueId> outputs;  // values that later segments import, in order of first use
  std::map<StepInput, graph::ValueId> step_inputs;
  std::map<const Parameter*, graph::ValueId> parameter_values;
  std::map<const Attention*, graph::ValueId> state_values;
  std::map<std::pair<int32_t, graph::ValueId>, graph::ValueId> imports;
};

Tracer::Tracer(int64_t tokens, BlockSet blocks) : tokens_(tokens), blocks_(std::move(blocks)) {
  SPYRE_CHECK(tokens > 0, "{} tokens", tokens);
}
Tracer::~Tracer() = default;

Tracer::Recording& Tracer::current() {
  if (!open_) {
    const std::string name = block_ ? block_->class_name() : "outer";
    recordings_.push_back(std::make_unique<Recording>(block_, name));
    open_ = true;
  }
  return *recordings_.back();
}

graph::Type Tracer::rows_type(DType dtype, std::vector<int64_t> rest) const {
  std::vector<graph::Dim> dims{{tokens_, true}};
  for (int64_t extent : rest) dims.push_back({extent, false});
  return graph::Type::tensor(dtype, std::move(dims));
}

graph::ValueId Tracer::import(Value value) {
  SPYRE_CHECK(value.valid() && value.segment < static_cast<int32_t>(recordings_.size()), "a value of another trace");
  Recording& here = current();
  const int32_t index = static_cast<int32_t>(recordings_.size()) - 1;
  if (value.segment == index) return value.id;
  const auto key = std::make_pair(value.segment, value.id);
  if (const auto found = here.imports.find(key); found != here.imports.end()) return found->second;
  Recording& there = *recordings_[value.segment];
  const graph::ValueId id = here.builder.input(fmt::format("in{}", here.inputs.size()), there.builder.type(value.id));
  here.inputs.push_back({.from_segment = true, .segment = value.segment, .output = there.output_index(value.id)});
  here.imports[key] = id;
  return id;
}

Value Tracer::step_input(StepInput which, const graph::Type& type) {
  static constexpr const char* kNames[] = {"token_ids", "positions", "slots", "batch", "hidden"};
  Recording& here = current();
  auto found = here.step_inputs.find(which);
  if (found == here.step_inputs.end()) {
    const graph::ValueId id = here.builder.input(kNames[static_cast<int>(which)], type);
    here.inputs.push_back({.from_segment = false, .step_input = which});
    found = here.step_inputs.emplace(which, id).first;
  }
  return {static_cast<int32_t>(recordings_.size()) - 1, found->second};
}

Value Tracer::token_ids() {
  return step_input(StepInput::kTokenIds, rows_type(DType::kI32, {}));
}
Value Tracer::positions() {
  return step_input(StepInput::kPositions, rows_type(DType::kI32, {}));
}
Value Tracer::slots() {
  return step_input(StepInput::kSlots, rows_type(DType::kI32, {}));
}
Value Tracer::batch() {
  return step_input(StepInput::kBatch, graph::Type::batch());
}

Value Tracer::parameter(const Parameter& parameter) {
  Recording& here = current();
  auto found = here.parameter_values.find(&parameter);
  if (found == here.parameter_values.end()) {
    // The path inside the block is the same for every layer; it only serves people who read the graph.
    std::string name = parameter.name;
    if (here.block && name.starts_with(here.block->path() + ".")) name = name.substr(here.block->path().size() + 1);
    const graph::ValueId id = here.builder.parameter(name, parameter.type);
    here.parameters.push_back(&parameter);
    found = here.parameter_values.emplace(&parameter, id).first;
  }
  return {static_cast<int32_t>(recordings_.size()) - 1, found->second};
}

std::vector<Value> Tracer::call(const Module& module, const std::function<std::vector<Value>()>& body) {
  if (block_ != nullptr || !blocks_.contains(&module)) return body();
  block_ = &module;
  open_ = false;
  std::vector<Value> results = body();
  block_ = nullptr;
  open_ = false;
  return results;
}

Value Tracer::op(std::string_view name, const std::vector<Value>& inputs,
                 std::vector<graph::NamedAttribute> attributes) {
  std::vector<graph::ValueId> ids;
  for (Value input : inputs) ids.push_back(import(input));
  const graph::ValueId result = current().builder.op1(name, std::move(ids), std::move(attributes));
  return {static_cast<int32_t>(recordings_.size()) - 1, result};
}

Value Tracer::convert(Value x, DType dtype) {
  return type(x).dtype == dtype ? x : op("convert", {x}, {{"dtype", std::string(to_string(dtype))}});
}

Value Tracer::slice_last(Value x, int64_t start, int64_t size) {
  const int64_t axis = type(x).rank() - 1;
  return op("slice", {x}, {{"axis", axis}, {"size", size}, {"start", start}});
}

Value Tracer::attend(const Attention& layer, Value q, Value k, Value v, double scale, double softcap, int64_t window) {
  const Value slot_values = slots();
  const Value batch_value = batch();
  const graph::ValueId q_id = import(q), k_id = import(k), v_id = import(v);
  Recording& here = current();
  auto found = here.state_values.find(&layer);
  if (found == here.state_values.end()) {
    const std::string name = fmt::format("kv{}", here.states.size());
    found = here.state_values.emplace(&layer, here.builder.state(name, layer.kv_type())).first;
    here.states.push_back(&layer);
  }
  found->second = here.builder.kv_store(found->second, k_id, v_id, slot_values.id);
  const graph::ValueId out = here.builder.attention(q_id, found->second, batch_value.id, scale, softcap, window);
  return {static_cast<int32_t>(recordings_.size()) - 1, out};
}

const graph::Type& Tracer::type(Value value) const {
  return recordings_[value.segment]->builder.type(value.id);
}

Trace Tracer::finish(const std::vector<Value>& outputs) {
  Trace trace;
  for (Value value : outputs) {
    trace.outputs.push_back(
        {.from_segment = true, .segment = value.segment, .output = recordings_[value.segment]->output_index(value.id)});
  }
  for (auto& recording : recordings_) {
    for (graph::ValueId id : recording->outputs) recording->builder.output(id);
    trace.segments.push_back({.block = recording->block,
                              .graph = recording->builder.finish(),
                              .inputs = std::move(recording->inputs),
                              .parameters = std::move(recording->parameters),
                              .states = std::move(recording->states)});
  }
  recordings_.clear();
  open_ = false;
  return trace;
}

}  // namespace spyre::nn
