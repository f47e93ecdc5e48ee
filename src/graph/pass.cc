#include "graph/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

const Pass* find_pass(const std::vector<Pass>& passes, const std::string& name) {
  const auto it = std::find_if(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; });
  return it == passes.end() ? nullptr : &*it;
}

void check_options(const std::vector<Pass>& passes, const PassOptions& options) {
  const auto known = [&] {
    std::string names;
    for (const Pass& pass : passes) names += (names.empty() ? "" : ", ") + pass.name;
    return names;
  };
  for (const std::string& name : options.disabled) {
    const Pass* pass = find_pass(passes, name);
    if (pass == nullptr) throw_error(ErrorCode::kInvalidArgument, "no pass is called '{}'; known: {}", name, known());
    if (pass->required) {
      throw_error(ErrorCode::kInvalidArgument, "pass '{}' is required and cannot be switched off", name);
    }
  }
  if (!options.dump_after.empty() && options.dump_after != "all" && find_pass(passes, options.dump_after) == nullptr) {
    throw_error(ErrorCode::kInvalidArgument, "cannot dump after '{}': no such pass; known: all, {}", options.dump_after,
                known());
  }
}

void dump(const PassOptions& options, const std::string& pass, const Graph& graph) {
  const std::string text = print(graph);
  if (options.dump) {
    options.dump(pass, text);
  } else {
    fmt::print(stderr, "# after {}\n{}", pass, text);
  }
}

}  // namespace

std::vector<PassRecord> run_passes(Graph& graph, const std::vector<Pass>& passes, const PassOptions& options) {
  check_options(passes, options);
  std::vector<PassRecord> records;
  for (const Pass& pass : passes) {
    PassRecord& record = records.emplace_back();
    record.name = pass.name;
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    record.changed = pass.run(graph);
    record.time = std::chrono::steady_clock::now() - start;
    record.ran = true;
    try {
      verify(graph);
    } catch (const Error& error) {
      throw_error(ErrorCode::kInternal, "pass '{}' left a graph that does not verify: {}", pass.name, error.what());
    }
    if (options.dump_after == "all" || options.dump_after == pass.name) dump(options, pass.name, graph);
  }
  return records;
}

}  // namespace spyre::graph
