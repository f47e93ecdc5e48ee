// What of a model is compiled, for any number of rows: its body (ids to hidden states), its head (hidden states to
// logits), and between them the selection of the rows that have logits.
//
// Each part is traced once. The graphs of another bucket are the traced ones with another number of rows, and segments
// whose graphs are equal up to names stay equal; so a body of 32 equal layers costs one trace, and a handful of graphs
// a bucket.
//
// The hidden states of the body lie by entry (device/entry_layout.h): the bodies of all buckets write the beginning of
// one tensor of the largest, and one selection per head bucket reads it. Were they to lie as the card's compiler
// chooses by itself, each bucket would have a layout of its own, and a selection per pair of buckets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "nn/models/causal_lm.h"
#include "nn/tracer.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/device/program.h"
#include "plugins/spyre/worker/run_trace.h"

namespace spyre::worker {

// A graph as it goes to the compiler.
struct Unit {
  graph::Graph graph;
  compiler::Boundary boundary;
};

using CompileUnit = std::function<std::shared_ptr<const device::Program>(const Unit&)>;
// The trace of a part for a number of rows.
using Record = std::function<RunTrace(int64_t rows)>;

class TracedPart {
 public:
  // |by_entry|: what the part gives lies by entry. |anew|: every number of rows is traced for itself, as padding that
  // operators decide for each other has to be (eager).
  TracedPart(Record record, bool by_entry, bool anew);

  // Segments in order of execution and where their operands come from, whatever the number of rows; the extents of
  // their graphs are those of one row.
  const RunTrace& trace() const { return trace_; }
  // The units that differ, in order of first use; of a part that is traced anew, those of all segments.
  std::vector<Unit> units(int64_t rows) const;
  // The program of each segment.
  std::vector<std::shared_ptr<const device::Program>> compile(int64_t rows, const CompileUnit& compile) const;

 private:
  Record record_;
  bool anew_;
  RunTrace trace_;
  std::vector<std::vector<int32_t>> entry_outputs_;  // per segment
  std::vector<int32_t> kinds_;                       // the first segment of each
  std::vector<int32_t> kind_of_;                     // per segment
};

// Refers to the model, its modules and parameters, which outlive it.
class ModelParts {
 public:
  // |most_tokens|: rows of the tensor that the bodies share, the largest bucket. |eager|: every operator is a segment.
  ModelParts(const nn::CausalLM& model, const nn::BlockSet& blocks, DType dtype, int64_t most_tokens,
             bool eager = false);

  const TracedPart& body() const { return body_; }
  const TracedPart& head() const { return head_; }
  // Inputs: hidden states [most tokens, hidden size] by entry, the indices of |rows| of them.
  Unit select_rows(int64_t rows) const;

 private:
  TracedPart body_, head_;
  graph::Type hidden_;  // [most tokens, hidden size]
};

}  // namespace spyre::worker
