#include "plugins/spyre/compiler/check_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/op_def.h"
#include "plugins/spyre/compiler/lower/card_ops.h"
#include "plugins/spyre/device/card_functions.h"
#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using testing::PlannedGraph;

const char* const kLayer = R"(
  input %x : f16[4,128]
  param %g : f16[128]
  param %w : f16[128,192]
  %n = rms_norm(%x, %g) {eps=1e-5}
  %y = matmul(%n, %w)
  %s = reduce_sum(%y) {axis=1, keepdims=1}
  %z = sub(%y, %s)
  return %z)";

TEST(CheckCalls, CountsTheRulesThatAProgramMeets) {
  PlannedGraph g(kLayer, "divide-work");
  for (const device::Rule rule : {device::Rule::kStickOffset, device::Rule::kMatmulSticks, device::Rule::kInt32Ops}) {
    EXPECT_EQ(g.state.log[rule], 0);
  }
  const int64_t operators = g.state.log["L-20"];
  EXPECT_EQ(check_calls(g.state), 6);  // three of the norm
  EXPECT_EQ(g.state.log["L-20"], operators + 6);
  EXPECT_EQ(g.state.log["L-37"], 3);  // the sticks of x, of y and the result, the types
  EXPECT_EQ(g.state.log["L-31"], 2);  // one dimension, and the stick's
  EXPECT_GT(g.state.log["L-25"], 0);
  EXPECT_GT(g.state.log["L-39"], 0);
  EXPECT_EQ(g.state.log["L-33"], 0);
}

// A reduction along the stick of what is given, but of an operand that is re-laid before it.
TEST(CheckCalls, AReductionIsNamedByTheLayoutItReads) {
  const PlannedGraph g(
      "input %x : f16[64,32]\nparam %w : f16[64,8]\n%s = reduce_sum(%x) {axis=1}\n%y = matmul(%s, %w)\nreturn %y");
  EXPECT_EQ(g.op_names(), (std::vector<std::string>{"restickify", "sumnonstick", "batchmatmul"}));
}

TEST(CheckCalls, APlanThatAPassGotWrongIsRefused) {
  PlannedGraph g(kLayer, "divide-work");
  for (device::CardBuffer& b : g.state.plan.buffers) {
    if (g.graph.value(b.value).name == "w") b.placement.stick_dim = 0;
  }
  try {
    check_calls(g.state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation);
    EXPECT_THAT(error.what(), ::testing::StartsWith("L-37"));
  }
}

// What docs/rules.md says of L-32 to L-36: no program has these functions, since no operator lowers to them. Of all
// others that operators lower to the card has one of the name.
TEST(CheckCalls, NoOperatorLowersToTopkProdPadFlipOrScatter) {
  const std::set<std::string> parts{"kv_store", "attention"};  // calls of programs
  std::set<device::FunctionKind> kinds;
  for (const graph::OpDef* def : graph::all_ops()) {
    if (!has_card_lowering(def->name)) continue;
    graph::Op op{.def = def};
    if (def->family == graph::OpFamily::kReduce) op.attributes = {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}};
    for (const int stick : {0, 1}) {
      for (const std::string& name : card_op_names(op, stick)) {
        const device::CardFunction* function = device::find_card_function(name);
        if (parts.count(name) > 0) continue;
        ASSERT_NE(function, nullptr) << def->name << " lowers to " << name;
        kinds.insert(function->kind);
      }
    }
  }
  using enum device::FunctionKind;
  EXPECT_EQ(kinds, (std::set<device::FunctionKind>{kUnary, kPointwise, kStickReduction, kReduction, kNormPart, kMatmul,
                                                   kCast, kMove, kGather}));
}

}  // namespace
}  // namespace spyre::compiler
