#include "plugins/spyre/worker/model_parts.h"

#include <map>
#include <string>
#include <utility>

#include "graph/builder.h"
#include "graph/with_rows.h"

namespace spyre::worker {
namespace {

RunTrace cut(nn::Trace trace, bool eager) {
  return eager ? RunTrace::eager(trace) : RunTrace::whole(std::move(trace));
}

Record body_of(const nn::CausalLM& model, const nn::BlockSet& blocks, bool eager) {
  return [&model, blocks, eager](int64_t rows) {
    nn::Tracer tracer(rows, blocks);
    return cut(tracer.finish({model.forward(tracer)}), eager);
  };
}

Record head_of(const nn::CausalLM& model, DType dtype, bool eager) {
  return [&model, dtype, eager](int64_t rows) {
    nn::Tracer tracer(rows);
    const nn::Value hidden = tracer.step_input(nn::StepInput::kHidden, tracer.rows_type(dtype, {model.hidden_size()}));
    return cut(tracer.finish({model.compute_logits(tracer, hidden)}), eager);
  };
}

}  // namespace

TracedPart::TracedPart(Record record, bool by_entry, bool anew)
    : record_(std::move(record)), anew_(anew), trace_(record_(1)), entry_outputs_(trace_.segments.size()) {
  if (by_entry) {
    for (const nn::InputSource& source : trace_.outputs) entry_outputs_[source.segment].push_back(source.output);
  }
  std::map<std::pair<std::string, std::vector<int32_t>>, int32_t> known;
  for (int32_t s = 0; s < static_cast<int32_t>(trace_.segments.size()); ++s) {
    auto kind = static_cast<int32_t>(kinds_.size());
    if (!anew_) {
      kind = known.emplace(std::pair(graph::canonical_text(trace_.segments[s].graph), entry_outputs_[s]), kind)
                 .first->second;
    }
    if (kind == static_cast<int32_t>(kinds_.size())) kinds_.push_back(s);
    kind_of_.push_back(kind);
  }
}

std::vector<Unit> TracedPart::units(int64_t rows) const {
  const RunTrace again = anew_ ? record_(rows) : RunTrace();
  std::vector<Unit> units;
  units.reserve(kinds_.size());
  for (const int32_t s : kinds_) {
    units.push_back(
        {anew_ ? again.segments[s].graph : graph::with_rows(trace_.segments[s].graph, rows),
         {.axes = (anew_ ? again : trace_).axes[s], .entry_inputs = {}, .entry_outputs = entry_outputs_[s]}});
  }
  return units;
}

std::vector<std::shared_ptr<const device::Program>> TracedPart::compile(int64_t rows,
                                                                        const CompileUnit& compile) const {
  std::vector<std::shared_ptr<const device::Program>> of_kinds, programs;
  for (const Unit& unit : units(rows)) of_kinds.push_back(compile(unit));
  programs.reserve(kind_of_.size());
  for (const int32_t kind : kind_of_) programs.push_back(of_kinds[kind]);
  return programs;
}

ModelParts::ModelParts(const nn::CausalLM& model, const nn::BlockSet& blocks, DType dtype, int64_t most_tokens,
                       bool eager)
    : body_(body_of(model, blocks, eager), true, eager),
      head_(head_of(model, dtype, eager), false, eager),
      hidden_(graph::Type::tensor(dtype, std::vector<int64_t>{most_tokens, model.hidden_size()})) {}

Unit ModelParts::select_rows(int64_t rows) const {
  graph::Builder b("select_rows");
  const graph::ValueId hidden = b.input("hidden", hidden_);
  const graph::ValueId ids = b.input("rows", graph::Type::tensor(DType::kI32, std::vector<graph::Dim>{{rows, true}}));
  b.output(b.gather_rows(hidden, ids));
  return {b.finish(), {.axes = {}, .entry_inputs = {0}, .entry_outputs = {}}};
}

}  // namespace spyre::worker
