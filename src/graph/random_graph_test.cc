#include "graph/random_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "graph/op_def.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

constexpr uint64_t kGraphs = 1200;

std::vector<uint32_t> bits(const Array& array) {
  std::vector<uint32_t> out;
  for (const float x : array.floats()) out.push_back(std::bit_cast<uint32_t>(x));
  return out;
}

TEST(RandomGraph, VerifiesPrintsParsesAndRuns) {
  double worst = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const RandomGraph r = random_graph(seed);
    const std::string text = print(r.graph);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, text));
    ASSERT_NO_THROW(verify(r.graph));
    const Graph again = parse(text);
    ASSERT_EQ(print(again), text);
    ASSERT_EQ(canonical_text(again), canonical_text(r.graph));
    ASSERT_EQ(canonical_text(parse(canonical_text(r.graph))), canonical_text(r.graph));

    for (const DotOrder order : {DotOrder::kPair, DotOrder::kTile}) {
      const std::vector<Array> exact = Interpreter(EvalMode::kExact, order).run(r.graph, r.bindings);
      const std::vector<Array> repeated = Interpreter(EvalMode::kExact, order).run(again, r.bindings);
      const std::vector<Array> reference = Interpreter(EvalMode::kFp32).run(r.graph, r.bindings);
      for (size_t i = 0; i < exact.size(); ++i) {
        ASSERT_EQ(bits(exact[i]), bits(repeated[i]));
        for (int64_t j = 0; j < exact[i].elements(); ++j) {
          const double difference = std::fabs(double{exact[i].floats()[j]} - reference[i].floats()[j]);
          ASSERT_LE(difference, r.tolerance[i]) << "output " << i << " element " << j << ": " << exact[i].floats()[j]
                                                << " for " << reference[i].floats()[j];
          worst = std::max(worst, difference / r.tolerance[i]);
        }
      }
    }
  }
  RecordProperty("worst_share_of_tolerance", std::to_string(worst));
  EXPECT_GT(worst, 0.05) << "the tolerance is too wide to find anything";
}

// Which row an element belongs to, or -1 for a value without rows.
int64_t row_of(const Type& type, int64_t element) {
  const int axis = type.rows_axis();
  if (axis < 0) return -1;
  int64_t inner = 1;
  for (int i = axis + 1; i < type.rank(); ++i) inner *= type.dims[i].extent;
  return element / inner % type.dims[axis].extent;
}

// The promise of type.h that lets a program skip rows that are not live: NaN in every other row reaches nothing.
TEST(RandomGraph, RowsAreIndependent) {
  int graphs = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomGraph r = random_graph(seed);
    Bindings poisoned = r.bindings;
    int64_t kept = -1;
    for (Array& input : poisoned.inputs) {
      const Type& type = input.type();
      if (type.rows_axis() < 0 || type.dtype == DType::kI32) continue;
      if (kept < 0) kept = static_cast<int64_t>(seed) % type.extent(type.rows_axis());
      std::vector<float> values(input.floats().begin(), input.floats().end());
      for (size_t i = 0; i < values.size(); ++i) {
        if (row_of(type, static_cast<int64_t>(i)) != kept) values[i] = std::numeric_limits<float>::quiet_NaN();
      }
      input = Array::of(type, std::move(values));
    }
    if (kept < 0) continue;
    ++graphs;
    const std::vector<Array> expected = Interpreter(EvalMode::kExact).run(r.graph, r.bindings);
    const std::vector<Array> got = Interpreter(EvalMode::kExact).run(r.graph, poisoned);
    for (size_t i = 0; i < got.size(); ++i) {
      const std::vector<uint32_t> a = bits(expected[i]), b = bits(got[i]);
      for (size_t j = 0; j < a.size(); ++j) {
        const int64_t row = row_of(got[i].type(), static_cast<int64_t>(j));
        if (row != kept && row >= 0) continue;
        ASSERT_EQ(a[j], b[j]) << "seed " << seed << " output " << i << "\n" << print(r.graph);
      }
    }
  }
  EXPECT_GE(graphs, 200);
}

TEST(RandomGraph, CoversTheTensorOperators) {
  std::map<std::string_view, int> seen;
  std::set<std::string> texts;
  int with_rows = 0, several_outputs = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const RandomGraph r = random_graph(seed);
    EXPECT_GE(r.graph.ops.size(), 3u);
    EXPECT_LE(r.graph.ops.size(), 15u);
    for (const Op& op : r.graph.ops) ++seen[op.name()];
    texts.insert(canonical_text(r.graph));
    with_rows += print(r.graph).find('@') != std::string::npos;
    several_outputs += r.graph.outputs.size() > 1;
  }
  for (const OpDef* def : all_ops()) {
    if (def->name == "kv_store" || def->name == "attention") continue;
    EXPECT_GE(seen[def->name], 20) << def->name;
  }
  EXPECT_GE(texts.size(), kGraphs * 99 / 100);
  EXPECT_GE(with_rows, 300);
  EXPECT_LE(with_rows, 1100);
  EXPECT_GE(several_outputs, 300);
}

TEST(RandomGraph, ASeedGivesTheSameGraphAndData) {
  const RandomGraph a = random_graph(42), b = random_graph(42);
  EXPECT_EQ(print(a.graph), print(b.graph));
  EXPECT_EQ(bits(a.bindings.inputs[0]), bits(b.bindings.inputs[0]));
}

}  // namespace
}  // namespace spyre::graph
