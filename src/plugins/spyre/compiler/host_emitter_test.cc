#include <gtest/gtest.h>

#include <map>

#include "base/cpu.h"
#include "base/error.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all{CpuLevel::kPortable};
  const CpuFeatures here = CpuFeatures::detected();
  if (here.avx2) all.push_back(CpuLevel::kAvx2);
  if (here.avx512) all.push_back(CpuLevel::kAvx512);
  if (here.avx512_bf16) all.push_back(CpuLevel::kAvx512Bf16);
  return all;
}

device::DeviceOptions options_for(CpuLevel level, DotOrder order, int threads) {
  return {.features = CpuFeatures::detected().capped(level), .bf16_order = order, .threads = threads};
}

std::unique_ptr<Compiler> compiler_for(const device::DeviceOptions& device) {
  return std::make_unique<Compiler>(
      CompileOptions{.features = device.features, .bf16_order = device.bf16_order, .threads = device.threads});
}

// The program of a random graph equals the exact interpreter, bit for bit, or a numbered rule refuses the graph.
TEST(HostEmitter, RandomGraphsEqualTheExactInterpreter) {
  std::map<std::string, int> refused;
  int lowered = 0;
  const std::vector<CpuLevel> all = levels();
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed);
    const DotOrder order = seed % 2 == 0 ? DotOrder::kPair : DotOrder::kTile;
    device::DeviceOptions options = options_for(all[seed % all.size()], order, 1 + static_cast<int>(seed / 7 % 3));
    options.executor.rows_per_member = seed % 3 == 0 ? 1 : 64;  // divided by rows, or by columns
    device::SoftwareDevice device(options);
    const auto compiler = compiler_for(device.options());
    std::shared_ptr<const device::Program> program;
    try {
      program = compiler->compile(random.graph);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
      ++refused[std::string(error.what()).substr(0, 4)];
      continue;
    }
    ++lowered;
    std::vector<graph::Array> expected;
    {
      ScopedFlushDenormals flush;
      expected = graph::Interpreter(graph::EvalMode::kExact, order).run(random.graph, random.bindings);
    }
    const auto results = testing::run_on_device(device, *program, random.bindings);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (expected[i].type().dtype == DType::kI32) continue;
      size_t where = 0;
      ASSERT_TRUE(testing::equal_bits(results[i], expected[i].floats(), &where))
          << "seed " << seed << " output " << i << " element " << where << ": " << results[i][where] << " is not "
          << expected[i].floats()[where] << "\n"
          << graph::print(random.graph);
    }
  }
  for (const auto& [rule, count] : refused) std::cout << rule << " refused " << count << " graphs\n";
  EXPECT_GT(lowered, 600);
}

}  // namespace
}  // namespace spyre::compiler
