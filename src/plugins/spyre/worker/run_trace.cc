#include "plugins/spyre/worker/run_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plugins/spyre/compiler/split_operators.h"

namespace spyre::worker {
namespace {

using graph::ValueId;
using nn::InputSource;

class Splitter {
 public:
  RunTrace run(const nn::Trace& trace) {
    for (const nn::Segment& segment : trace.segments) add(segment);
    for (const InputSource& source : trace.outputs) made_.outputs.push_back(moved(source));
    return std::move(made_);
  }

 private:
  // Where a source of the trace is now.
  InputSource moved(const InputSource& source) const {
    return source.from_segment ? outputs_.at(source.segment).at(source.output) : source;
  }

  void add(const nn::Segment& whole) {
    const graph::Graph& graph = whole.graph;
    std::map<ValueId, InputSource> at;  // of the values that units have read or made
    for (size_t i = 0; i < graph.inputs.size(); ++i) at[graph.inputs[i]] = moved(whole.inputs[i]);
    for (compiler::OperatorUnit& unit : compiler::split_operators(graph)) {
      const auto index = static_cast<int32_t>(made_.segments.size());
      nn::Segment part{.block = whole.block};
      for (const ValueId v : unit.inputs) part.inputs.push_back(at.at(v));
      for (const ValueId v : unit.parameters)
        part.parameters.push_back(whole.parameters[position(graph.parameters, v)]);
      for (const ValueId v : unit.states) part.states.push_back(whole.states[position(graph.states, v)]);
      std::vector<int64_t> traced;
      for (size_t o = 0; o < unit.outputs.size(); ++o) {
        const size_t where = position(graph.outputs, unit.outputs[o]);
        traced.push_back(where < graph.outputs.size() ? static_cast<int64_t>(where) : -1);
        at[unit.outputs[o]] = {.from_segment = true, .segment = index, .output = static_cast<int32_t>(o)};
      }
      part.graph = std::move(unit.graph);
      made_.segments.push_back(std::move(part));
      made_.axes.push_back(std::move(unit.axes));
      made_.traced_output.push_back(std::move(traced));
    }
    std::vector<InputSource> outputs;
    for (const ValueId v : graph.outputs) outputs.push_back(at.at(v));
    outputs_.push_back(std::move(outputs));
  }

  static size_t position(const std::vector<ValueId>& values, ValueId value) {
    return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
  }

  RunTrace made_;
  std::vector<std::vector<InputSource>> outputs_;  // [segment of the trace][output]
};

}  // namespace

RunTrace RunTrace::whole(nn::Trace trace) {
  RunTrace made;
  static_cast<nn::Trace&>(made) = std::move(trace);
  made.axes.resize(made.segments.size());
  for (const nn::Segment& segment : made.segments) {
    std::vector<int64_t> all(segment.graph.outputs.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    made.traced_output.push_back(std::move(all));
  }
  return made;
}

RunTrace RunTrace::eager(const nn::Trace& trace) {
  return Splitter().run(trace);
}

}  // namespace spyre::worker
