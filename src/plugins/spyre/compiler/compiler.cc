#include "plugins/spyre/compiler/compiler.h"

#include "base/error.h"
#include "plugins/spyre/compiler/card_passes.h"
#include "plugins/spyre/compiler/graph_passes.h"
#include "plugins/spyre/compiler/host_emit.h"

namespace spyre::compiler {
std::shared_ptr<const device::Program> Compiler::compile(const graph::Graph& graph) {
  std::string key = graph::canonical_text(graph);
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second;

  auto program = std::make_shared<device::Program>();
  program->key = key;
  program->graph = graph;
  graph::verify(program->graph);
  program->passes = graph::run_passes(program->graph, graph_passes(), options_.passes);

  const graph::Graph& g = program->graph;
  RuleLog log;
  CardState state(g, log);
  program->card_passes = run_card_passes(state);
  program->card = std::move(state.plan);
  program->rules_met = log.by_number();
  auto specs = [&](const std::vector<graph::ValueId>& values) {
    std::vector<device::TensorSpec> made;
    for (graph::ValueId value : values) {
      const graph::Type& type = g.type(value);
      const bool batch = type.kind == graph::TypeKind::kBatch;
      made.push_back(batch ? device::TensorSpec{} : card_spec(type, state.axes[value], state.layouts.stick[value]));
    }
    return made;
  };
  program->input_specs = specs(g.inputs);
  program->parameter_specs = specs(g.parameters);
  program->state_specs = specs(g.states);
  program->output_specs = specs(g.outputs);
  program->parameter_forms = parameter_forms(g);
  program->host = emit_host_plan(g, options_);
  ++compiles_;
  return cache_.emplace(std::move(key), std::move(program)).first->second;
}

}  // namespace spyre::compiler
