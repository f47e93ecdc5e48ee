// Steps on operands that a model does not have, but a graph may.
#include "plugins/spyre/device/host_steps.h"

#include <gtest/gtest.h>

#include "base/cpu.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::device {
namespace {

// Its rows lie in the arena, behind no store.
TEST(GatherStep, ReadsATableThatTheProgramComputes) {
  const graph::Graph g = graph::parse(R"(graph g {
    input %ids : i32[@4]
    param %table : f16[8,64]
    %doubled = scale(%table) {factor=2}
    %y = gather_rows(%doubled, %ids)
    return %y
  })");
  std::vector<float> table(8 * 64);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  graph::Bindings bindings;
  bindings.inputs.push_back(graph::Array::of_ints(g.type(g.inputs[0]), {7, 0, 3, 3}));
  bindings.parameters.push_back(graph::Array::of(g.type(g.parameters[0]), table));
  for (const ExecutionMode mode : {ExecutionMode::kHost, ExecutionMode::kChecked}) {
    SoftwareDevice device({.mode = mode, .features = CpuFeatures::detected(), .threads = 2});
    compiler::Compiler compiler({.features = CpuFeatures::detected(), .threads = 2});
    const std::vector<float> rows = testing::run_on_device(device, *compiler.compile(g), bindings).at(0);
    for (const auto& [row, id] : {std::pair{0, 7}, {1, 0}, {2, 3}, {3, 3}}) {
      for (int i = 0; i < 64; ++i) ASSERT_EQ(rows[row * 64 + i], 2.0f * static_cast<float>(id * 64 + i)) << row;
    }
  }
}

}  // namespace
}  // namespace spyre::device
