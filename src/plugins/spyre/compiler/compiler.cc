#include "plugins/spyre/compiler/compiler.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "plugins/spyre/compiler/card_passes.h"
#include "plugins/spyre/compiler/graph_passes.h"
#include "plugins/spyre/compiler/host_emit.h"

namespace spyre::compiler {
std::shared_ptr<const device::Program> Compiler::compile(const graph::Graph& graph, const BoundaryAxes& given) {
  std::string key = graph::canonical_text(graph);
  if (!given.empty()) key += given.to_string();
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second;

  auto program = std::make_shared<device::Program>();
  program->key = key;
  program->graph = graph;
  graph::verify(program->graph);
  program->passes = graph::run_passes(program->graph, graph_passes(), options_.passes);

  const graph::Graph& g = program->graph;
  RuleLog log;
  CardState state(g, log, given);
  program->card_passes = run_card_passes(state, {.verify = options_.verify_phases});
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

std::vector<std::string> Compiler::pass_names() {
  std::vector<std::string> names;
  for (const graph::Pass& pass : graph_passes()) names.push_back(pass.name);
  for (const CardPass& pass : card_passes()) names.emplace_back(pass.name);
  return names;
}

std::string Compiler::text_after(const graph::Graph& graph, const std::string& pass, const BoundaryAxes& given) const {
  const std::vector<std::string> names = pass_names();
  if (pass != "all" && std::find(names.begin(), names.end(), pass) == names.end()) {
    throw_error(ErrorCode::kInvalidArgument, "no pass is called '{}'; known: all, {}", pass, fmt::join(names, ", "));
  }
  std::string text;
  const auto dump = [&](std::string_view after, const std::string& made) {
    if (pass == "all") text += fmt::format("# after {}\n", after);
    text += made;
  };
  graph::Graph made = graph;
  graph::PassOptions options = options_.passes;
  const bool of_graph =
      std::any_of(graph_passes().begin(), graph_passes().end(), [&](const graph::Pass& p) { return p.name == pass; });
  options.dump_after = pass == "all" || of_graph ? pass : "";
  options.dump = dump;
  graph::run_passes(made, graph_passes(), options);
  if (of_graph) return text;
  RuleLog log;
  CardState state(made, log, given);
  run_card_passes(state, {.verify = true, .dump_after = pass, .dump = dump});
  return text;
}

}  // namespace spyre::compiler
