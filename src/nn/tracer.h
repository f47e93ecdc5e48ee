// The Tracer turns a model's forward code into graphs. Layers call its operators as they would call tensor functions;
// what is recorded is cut into segments at block boundaries, so that equal blocks become equal graphs.
//
// A Trace is the result: segments in order of execution, each with a graph and, for every graph input, parameter and
// state, where it comes from. Single-threaded; a Tracer records one pass for one number of tokens. Forward code is not
// told the number: a pass for another one is the same with another extent of its rows (graph/with_rows.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/export.h"
#include "graph/builder.h"
#include "nn/module.h"

namespace spyre::nn {

class Attention;

// A value of the model: made in one segment, usable in all later ones (it is imported where it is used).
struct Value {
  int32_t segment = -1;
  graph::ValueId id = graph::kNoValue;
  bool valid() const { return segment >= 0; }
};

// What each step brings.
enum class StepInput : uint8_t { kTokenIds, kPositions, kSlots, kBatch, kHidden };

struct InputSource {
  // From a step input, or from an output of an earlier segment.
  bool from_segment = false;
  StepInput step_input = StepInput::kTokenIds;
  int32_t segment = 0, output = 0;
};

struct Segment {
  const Module* block = nullptr;  // null: outside of every block
  graph::Graph graph;
  std::vector<InputSource> inputs;           // parallel to graph.inputs
  std::vector<const Parameter*> parameters;  // parallel to graph.parameters
  std::vector<const Attention*> states;      // parallel to graph.states: whose KV cache
};

struct Trace {
  std::vector<Segment> segments;
  std::vector<InputSource> outputs;  // all from segments
};

class SPYRE_API Tracer {
 public:
  // |tokens| is the extent of the rows dimension. |blocks| says which modules become segments of their own
  // (find_blocks); without any, everything is one segment.
  explicit Tracer(int64_t tokens, BlockSet blocks = {});
  ~Tracer();

  graph::Type rows_type(DType dtype, std::vector<int64_t> rest) const;  // [@tokens, rest...]

  Value step_input(StepInput which, const graph::Type& type);
  Value token_ids();  // i32[@T]
  Value positions();  // i32[@T]
  Value slots();      // i32[@T]
  Value batch();
  Value parameter(const Parameter& parameter);

  // Records |body|, the forward pass of |module|: as a segment of its own, compiled and shared as a unit, when the
  // module is one of the blocks.
  std::vector<Value> call(const Module& module, const std::function<std::vector<Value>()>& body);

  // Operators, as in graph::Builder.
  Value op(std::string_view name, const std::vector<Value>& inputs, std::vector<graph::NamedAttribute> attributes = {});
  Value add(Value a, Value b) { return op("add", {a, b}); }
  Value mul(Value a, Value b) { return op("mul", {a, b}); }
  Value silu(Value x) { return op("silu", {x}); }
  Value matmul(Value x, Value w) { return op("matmul", {x, w}); }
  Value linear(Value x, Value w) { return op("linear", {x, w}); }
  Value rms_norm(Value x, Value w, double eps) { return op("rms_norm", {x, w}, {{"eps", eps}}); }
  Value convert(Value x, DType dtype);  // x itself when it has the dtype
  Value reshape(Value x, std::vector<int64_t> shape) { return op("reshape", {x}, {{"shape", std::move(shape)}}); }
  Value slice_last(Value x, int64_t start, int64_t size);
  Value gather_rows(Value table, Value ids) { return op("gather_rows", {table, ids}); }
  // Stores k and v into the layer's cache and attends from q over it. All [@T, heads, head size].
  Value attend(const Attention& layer, Value q, Value k, Value v, double scale, double softcap, int64_t window);

  const graph::Type& type(Value value) const;
  Trace finish(const std::vector<Value>& outputs);

 private:
  struct Recording;  // a segment under construction
  Recording& current();
  graph::ValueId import(Value value);

  int64_t tokens_;
  BlockSet blocks_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  const Module* block_ = nullptr;
  bool open_ = false;  // the last recording may still be extended
};

}  // namespace spyre::nn
