#include "plugins/spyre/compiler/card_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/verify_card_plan.h"
#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using ::testing::HasSubstr;
using testing::PlannedGraph;

const char* const kLinear =
    "input %x : f16[4,100]\nparam %w : f16[128,100]\n%y = linear(%x, %w)\n%z = neg(%y)\nreturn %z";

TEST(CardPasses, EachHasARecordOfWhatItDid) {
  const graph::Graph graph = graph::parse(std::string("graph g {\n") + kLinear + "\n}");
  RuleLog log;
  CardState state(graph, log);
  const std::vector<device::CardPassRecord> records = run_card_passes(state);
  ASSERT_EQ(records.size(), card_passes().size());
  std::map<std::string_view, int64_t> counts;
  for (const auto& record : records) {
    counts[record.name] = record.count;
    EXPECT_GE(record.time.count(), 0);
  }
  EXPECT_EQ(counts["verify-rules"], 2);
  EXPECT_EQ(counts["propagate-layouts"], 1);
  EXPECT_EQ(counts["insert-restickify"], 1);
  EXPECT_EQ(counts["lower-operators"], 2);
  EXPECT_EQ(counts["plan-pool"], 2);  // the weight laid again, and the product
}

TEST(CardPasses, ADumpComesAfterThePhaseThatIsNamed) {
  const graph::Graph graph = graph::parse(std::string("graph g {\n") + kLinear + "\n}");
  const auto dumps = [&](const std::string& after) {
    RuleLog log;
    CardState state(graph, log);
    std::map<std::string, std::string> made;
    run_card_passes(state, {.dump_after = after, .dump = [&](std::string_view pass, const std::string& text) {
                              made[std::string(pass)] = text;
                            }});
    return made;
  };
  EXPECT_EQ(dumps("all").size(), card_passes().size());
  EXPECT_TRUE(dumps("").empty());
  const auto layouts = dumps("propagate-layouts");
  ASSERT_EQ(layouts.size(), 1u);
  EXPECT_THAT(layouts.begin()->second, HasSubstr("%w is re-laid to dimension 0 for linear %y"));
  const auto lowered = dumps("insert-restickify");
  EXPECT_THAT(lowered.begin()->second, HasSubstr("<- restickify("));
  const auto last = dumps("account-work");
  EXPECT_THAT(last.begin()->second, HasSubstr("<- batchmatmul("));
  EXPECT_THAT(last.begin()->second, HasSubstr("MACs"));
}

// A plan that a phase spoilt is reported with the phase's name, and is not taken for a broken rule.
void expect_internal(const char* text, const std::function<void(device::CardPlan&)>& spoil, const std::string& part) {
  PlannedGraph g{std::string(text)};
  spoil(g.state.plan);
  try {
    verify_card_plan(g.state, "some-phase");
    ADD_FAILURE() << "nothing was noticed: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("after some-phase"));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(VerifyCardPlan, NoticesWhatAPhaseSpoils) {
  expect_internal(kLinear, [](device::CardPlan& plan) { std::swap(plan.ops[0], plan.ops[1]); }, "nothing wrote");
  expect_internal(kLinear, [](device::CardPlan& plan) { plan.ops[1].extents.pop_back(); }, "more splits");
  const char* const sum = "input %x : f16[8,64]\n%a = neg(%x)\n%b = exp(%x)\n%y = add(%a, %b)\nreturn %y";
  expect_internal(
      sum,
      [](device::CardPlan& plan) {
        for (device::CardBuffer& b : plan.buffers) b.pool_offset = std::min<int64_t>(b.pool_offset, 0);
      },
      "share memory");
  expect_internal(sum, [](device::CardPlan& plan) { plan.pool_bytes -= 128; }, "ends behind the pool");
  const char* const view = "input %x : f16[4,128]\n%h = slice(%x) {axis=1, start=64, size=64}\n%y = neg(%h)\nreturn %y";
  expect_internal(
      view,
      [](device::CardPlan& plan) {
        for (device::CardBuffer& b : plan.buffers) b.placement.offset += b.view ? 256 : 0;
      },
      "reaches element");
  expect_internal(
      view,
      [](device::CardPlan& plan) {
        for (device::CardBuffer& b : plan.buffers) b.view = b.view || b.home == device::BufferHome::kInput, b.base = 0;
      },
      "view of a view");
}

}  // namespace
}  // namespace spyre::compiler
