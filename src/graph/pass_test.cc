#include "graph/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

using ::testing::HasSubstr;

Graph small() {
  return parse("graph g {\n input %x : f16[2]\n %y = neg(%x)\n %z = abs(%y)\n return %z\n}");
}

// abs(neg(x)) = abs(x)
bool drop_neg(Graph& graph) {
  if (graph.ops.size() < 2) return false;
  graph.ops[1].inputs[0] = graph.ops[0].inputs[0];
  compact(graph);
  return true;
}
bool change_nothing(Graph&) {
  return false;
}
bool damage(Graph& graph) {
  graph.ops[0].inputs[0] = 77;
  return true;
}

template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kUnavailable, "no error"};
}

TEST(Pass, RunsInOrderAndRecords) {
  Graph graph = small();
  const auto records = run_passes(graph, {{"drop-neg", drop_neg}, {"rest", change_nothing}});
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0].ran && records[0].changed);
  EXPECT_TRUE(records[1].ran && !records[1].changed);
  EXPECT_EQ(print(graph), "graph g {\n  input %x : f16[2]\n  %z : f16[2] = abs(%x)\n  return %z\n}\n");
}

TEST(Pass, ASwitchTurnsOneOff) {
  Graph graph = small();
  const auto records = run_passes(graph, {{"drop-neg", drop_neg}}, {.disabled = {"drop-neg"}});
  EXPECT_FALSE(records[0].ran);
  EXPECT_EQ(graph.ops.size(), 2u);
}

TEST(Pass, DumpsAfterTheNamedPassOrAll) {
  for (const auto& [after, count] : {std::pair("rest", 1), std::pair("all", 2), std::pair("", 0)}) {
    Graph graph = small();
    std::vector<std::string> dumped;
    run_passes(graph, {{"drop-neg", drop_neg}, {"rest", change_nothing}},
               {.dump_after = after, .dump = [&](const std::string& pass, const std::string& text) {
                  dumped.push_back(pass);
                  EXPECT_EQ(text, print(graph));
                }});
    EXPECT_EQ(dumped.size(), static_cast<size_t>(count)) << after;
  }
}

TEST(Pass, RefusesUnknownNamesAndRequiredSwitches) {
  Graph graph = small();
  const std::vector<Pass> passes = {{"lower", change_nothing, true}, {"rest", change_nothing}};
  EXPECT_THAT(error_of([&] { run_passes(graph, passes, {.disabled = {"low"}}); }).what(),
              HasSubstr("no pass is called 'low'; known: lower, rest"));
  EXPECT_THAT(error_of([&] { run_passes(graph, passes, {.disabled = {"lower"}}); }).what(), HasSubstr("required"));
  EXPECT_THAT(error_of([&] { run_passes(graph, passes, {.dump_after = "x"}); }).what(),
              HasSubstr("cannot dump after 'x'"));
}

TEST(Pass, NamesThePassThatBrokeTheGraph) {
  Graph graph = small();
  const Error error = error_of([&] { run_passes(graph, {{"rest", change_nothing}, {"damage", damage}}); });
  EXPECT_EQ(error.code(), ErrorCode::kInternal);
  EXPECT_THAT(error.what(), HasSubstr("pass 'damage' left a graph that does not verify"));
}

}  // namespace
}  // namespace spyre::graph
