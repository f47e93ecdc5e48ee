#include "plugins/spyre/compiler/compiler.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "plugins/spyre/compiler/card_passes.h"
#include "plugins/spyre/compiler/graph_passes.h"
#include "plugins/spyre/compiler/host_emit.h"

namespace spyre::compiler {
namespace {

std::string key_of(const graph::Graph& graph, const Boundary& boundary) {
  std::string key = graph::canonical_text(graph);
  if (!boundary.axes.empty()) key += boundary.axes.to_string();
  if (!boundary.entry_inputs.empty()) key += fmt::format("entries in {}\n", fmt::join(boundary.entry_inputs, " "));
  if (!boundary.entry_outputs.empty()) key += fmt::format("entries out {}\n", fmt::join(boundary.entry_outputs, " "));
  return key;
}

CardState card_state(const graph::Graph& graph, RuleLog& log, const Boundary& boundary) {
  CardState state(graph, log, boundary.axes);
  for (const int32_t i : boundary.entry_inputs) state.by_entry[graph.inputs.at(i)] = true;
  for (const int32_t i : boundary.entry_outputs) state.by_entry[graph.outputs.at(i)] = true;
  return state;
}

}  // namespace

std::shared_ptr<const device::Program> Compiler::compile(const graph::Graph& graph, const Boundary& boundary) {
  std::string key = key_of(graph, boundary);
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second;

  auto program = std::make_shared<device::Program>();
  program->key = key;
  program->graph = graph;
  graph::verify(program->graph);
  program->passes = graph::run_passes(program->graph, graph_passes(), options_.passes);

  const graph::Graph& g = program->graph;
  RuleLog log;
  CardState state = card_state(g, log, boundary);
  program->card_passes = run_card_passes(state, {.verify = options_.verify_phases});
  program->card = std::move(state.plan);
  program->rules_met = log.by_number();
  auto specs = [&](const std::vector<graph::ValueId>& values) {
    std::vector<device::TensorSpec> made;
    for (graph::ValueId value : values) {
      const graph::Type& type = g.type(value);
      const bool batch = type.kind == graph::TypeKind::kBatch;
      made.push_back(batch ? device::TensorSpec{} : state.spec(value, state.layouts.stick[value]));
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

std::string Compiler::text_after(const graph::Graph& graph, const std::string& pass, const Boundary& boundary) const {
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
  CardState state = card_state(made, log, boundary);
  run_card_passes(state, {.verify = true, .dump_after = pass, .dump = dump});
  return text;
}

}  // namespace spyre::compiler
