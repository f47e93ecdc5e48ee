// A card plan written with labels instead of a graph: every dimension of a buffer has a letter, and an operation
// iterates over the letters of its operands. What attention's programs are made with (attention_program.h).
//
// A label's extent is the same wherever it occurs; '-' is a dimension that no core's part follows (looked up by an
// index, or merged with others). Work is divided as that of graphs is, calls of card functions are checked as theirs,
// the scratchpad is planned by plan_lx().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/divide_matmuls.h"
#include "plugins/spyre/compiler/divide_work.h"
#include "plugins/spyre/compiler/lower/iteration.h"
#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/compiler/reduce_spans.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::compiler {

class LabelledPlan {
 public:
  // An operand, and the labels of its dimensions as this operation sees them.
  struct Operand {
    int32_t buffer = -1;
    std::string labels;
  };

  // Work is divided over |cores| at most; rules that are checked are counted in |log|, which outlives the plan.
  LabelledPlan(int64_t cores, RuleLog& log) : cores_(cores), log_(log) {}

  void extent(char label, int64_t extent) { extents_[static_cast<unsigned char>(label)] = extent; }

  int32_t add(std::string name, std::string labels, device::TensorSpec spec, device::BufferHome home);
  // |rows_inside|: dimensions lie in order, but the last two make a matrix of sticks (the sticks outside of the rows);
  // otherwise the default layout.
  int32_t tensor(std::string name, const std::string& labels, DType dtype, device::BufferHome home, bool rows_inside);
  // One element per stick: what a reduction along the stick leaves.
  int32_t sparse(std::string name, const std::string& labels, DType dtype);
  int32_t index(std::string name, const std::vector<int64_t>& extents);  // i32, given
  // |at| of the first dimension of |of|, without that dimension: a view.
  int32_t part(int32_t of, int64_t at, const std::string& labels);
  const std::string& name(int32_t buffer) const { return names_[static_cast<size_t>(buffer)]; }

  // An operation on buffers as they are labelled; |reduced| is the label that the result lacks, 0 for none. Products,
  // reductions and elementwise work by the name. Returns |output|.
  int32_t op(const char* name, const std::vector<int32_t>& inputs, int32_t output, char reduced = 0);
  int32_t op(const char* name, std::vector<Operand> inputs, Operand output, char reduced = 0);
  // Rows of |table| that |index| names. Divided by the entries of the index first: the parts of one entry cannot be
  // more than a core reads at once (INF). The index's stick counts: a 1-D index is divided in whole sticks of entries.
  void gather(Operand table, Operand index, Operand output);
  void restickify(int32_t from, int32_t to);
  // |source| to the rows of |table| that |index| names.
  void index_copy(Operand source, Operand index, Operand table);

  // Plans the scratchpad and the pool, and takes the plan out.
  void finish(const LxOptions& lx, device::CardPlan& plan, std::vector<std::string>& names,
              std::vector<device::OpWork>& works);

 private:
  struct Shape {  // of an operation
    std::vector<IterationDim> dims;
    std::string labels;  // parallel to dims
    int find(char label) const {
      const size_t at = labels.find(label);
      return at == std::string::npos ? -1 : static_cast<int>(at);
    }
  };
  Shape iterate(const std::vector<Operand>& operands, const std::string& over, char reduced) const;
  device::DeviceOp& emit(const char* name, std::vector<Operand> inputs, Operand output, const std::string& over,
                         char reduced, const DivisionScore& score);
  void divide(device::DeviceOp& op, const DivisionScore& score);
  void check_call(const device::DeviceOp& op);
  DivisionScore product_score(const std::vector<Operand>& inputs, const Operand& output, char reduced) const;
  device::OpWork product_work(const std::vector<Operand>& inputs, const Operand& output, char reduced) const;
  int64_t extent_of(char label) const { return extents_[static_cast<unsigned char>(label)]; }
  int64_t bytes(int32_t buffer) const;
  int64_t elements(int32_t buffer) const;
  void place_pool();

  int64_t cores_;
  RuleLog& log_;
  std::array<int64_t, 256> extents_{};
  device::CardPlan plan_;
  std::vector<std::string> names_, labels_;  // of the buffers
  std::vector<device::OpWork> works_;        // of the operations
};

}  // namespace spyre::compiler
