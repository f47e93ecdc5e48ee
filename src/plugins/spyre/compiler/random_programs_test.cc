// Random small graphs through all phases, verified after each: the program equals the exact interpreter bit for bit on
// the host plan and on the card plan, or a rule refuses it; nothing crashes.
//
// SPYRE_RANDOM_GRAPHS=N runs N graphs instead of a few, SPYRE_RANDOM_SEED=S begins at another seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

uint64_t from_environment(const char* name, uint64_t initial) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? initial : std::strtoull(value, nullptr, 10);
}

class RandomRun {
 public:
  void graph(uint64_t seed) {
    const graph::RandomGraph random =
        graph::random_graph(seed, {.max_elements = seed % 3 == 0 ? 40000 : 8000, .whole_sticks = seed % 2 == 0});
    const DotOrder order = seed % 4 < 2 ? DotOrder::kPair : DotOrder::kTile;
    Compiler compiler({.features = CpuFeatures::detected(), .bf16_order = order, .threads = 1, .verify_phases = true});
    std::shared_ptr<const device::Program> program;
    try {
      program = compiler.compile(random.graph);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kRuleViolation) << "seed " << seed << ": " << error.what() << "\n"
                                                         << graph::print(random.graph);
      ++refused_[std::string(error.what()).substr(0, 4)];
      return;
    }
    ++lowered_;
    restickified_ += program->card.restickified_bytes > 0;
    ScopedFlushDenormals flush;
    const auto expected = graph::Interpreter(graph::EvalMode::kExact, order).run(random.graph, random.bindings);
    for (const auto mode : {device::ExecutionMode::kHost, device::ExecutionMode::kChecked}) {
      device::SoftwareDevice device(
          {.mode = mode, .features = CpuFeatures::detected(), .bf16_order = order, .threads = 1});
      const auto results = testing::run_on_device(device, *program, random.bindings);
      for (size_t i = 0; i < results.size(); ++i) {
        if (expected[i].type().dtype == DType::kI32) continue;
        size_t where = 0;
        ASSERT_TRUE(testing::equal_bits(results[i], expected[i].floats(), &where))
            << "seed " << seed << (mode == device::ExecutionMode::kHost ? " host" : " checked") << " output " << i
            << " element " << where << "\n"
            << graph::print(program->graph);
      }
    }
  }

  void report(std::ostream& out) const {
    for (const auto& [rule, count] : refused_) out << rule << " refused " << count << " graphs\n";
    out << lowered_ << " graphs lowered, " << restickified_ << " of them with a restickify\n";
  }
  int lowered() const { return lowered_; }
  int restickified() const { return restickified_; }

 private:
  std::map<std::string, int> refused_;
  int lowered_ = 0, restickified_ = 0;
};

TEST(RandomPrograms, EqualTheInterpreterOrAreRefused) {
  const uint64_t count = from_environment("SPYRE_RANDOM_GRAPHS", 300);
  const uint64_t first = from_environment("SPYRE_RANDOM_SEED", 100000);
  RandomRun run;
  for (uint64_t i = 0; i < count && !::testing::Test::HasFatalFailure(); ++i) {
    run.graph(first + i);
    if (i % 10000 == 9999) std::cout << i + 1 << " graphs\n" << std::flush;
  }
  run.report(std::cout);
  EXPECT_GE(run.lowered(), static_cast<int>(count * 6 / 10));
  if (count >= 300) {
    EXPECT_GT(run.restickified(), 0);
  }
}

}  // namespace
}  // namespace spyre::compiler
