#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_def.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

using ::testing::HasSubstr;

const Graph& attention_block() {
  static const Graph graph = parse(R"(graph block {
    input %x : f16[@4,2,8]
    input %slots : i32[@4]
    input %batch : batch
    state %kv : kv f16[2,8]
    %kv1 = kv_store(%kv, %x, %x, %slots)
    %y = attention(%x, %kv1, %batch) {scale=0.5}
    %z = neg(%y)
    %w = add(%y, %z)
    return %w
  })");
  return graph;
}

template <typename Damage>
std::string verify_error(Damage&& damage) {
  Graph graph = attention_block();
  damage(graph);
  try {
    verify(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Verify, AcceptsAGoodGraph) {
  EXPECT_NO_THROW(verify(attention_block()));
}

TEST(Verify, NamesWhatIsWrong) {
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[3].inputs[0] = 99; }), HasSubstr("operand 99 is not a value"));
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[3].inputs[0] = -1; }), HasSubstr("operand -1 is not a value"));
  EXPECT_THAT(verify_error([](Graph& g) { std::swap(g.ops[2], g.ops[3]); }),
              HasSubstr("add reads %z before it is defined"));
  EXPECT_THAT(verify_error([](Graph& g) {
                g.ops[2].def = &op_named("softmax"), g.values[g.ops[2].outputs[0]].type.dims[2].extent = 4;
              }),
              HasSubstr("result %z of softmax is declared f16[@4,2,4], its operands give f16[@4,2,8]"));
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[2].def = nullptr; }), HasSubstr("operator 2 has no definition"));
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[2].attributes.push_back({"a", int64_t{1}}); }),
              HasSubstr("neg has no attribute 'a'"));
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[1].attributes[0].value = std::string("x"); }),
              HasSubstr("attribute 'scale' must be a number, got a string"));
  EXPECT_THAT(verify_error([](Graph& g) { std::swap(g.ops[1].attributes[0], g.ops[1].attributes[1]); }),
              HasSubstr("out of order"));
  EXPECT_THAT(verify_error([](Graph& g) { g.values[0].name = g.values[1].name; }), HasSubstr("is defined twice"));
  EXPECT_THAT(verify_error([](Graph& g) { g.values[0].name = "a b"; }), HasSubstr("'a b' is not a value name"));
  EXPECT_THAT(verify_error([](Graph& g) { g.ops.pop_back(); }), HasSubstr("no operator defines it"));
  EXPECT_THAT(verify_error([](Graph& g) { g.inputs.push_back(g.inputs[0]); }), HasSubstr("value %x is defined twice"));
  EXPECT_THAT(verify_error([](Graph& g) { g.values[g.ops[2].outputs[0]].producer = 0; }),
              HasSubstr("another role or producer"));
  EXPECT_THAT(verify_error([](Graph& g) { g.outputs[0] = 42; }), HasSubstr("output 42 is not a value"));
  EXPECT_THAT(verify_error([](Graph& g) { g.outputs[0] = g.ops[0].outputs[0]; }), HasSubstr("outputs are tensors"));
}

TEST(Verify, StatesAreUsedLinearly) {
  EXPECT_THAT(verify_error([](Graph& g) { g.ops[1].inputs[1] = g.states[0]; }),
              HasSubstr("attention reads the state %kv after kv_store (operator 0) replaced it"));
  // A second store must take the state that the first returned.
  const std::string_view twice = R"(graph g {{
    input %x : f16[@4,2,8]
    input %slots : i32[@4]
    state %kv : kv f16[2,8]
    %kv1 = kv_store(%kv, %x, %x, %slots)
    %kv2 = kv_store(%{}, %x, %x, %slots)
    return
  }})";
  EXPECT_NO_THROW(parse(fmt::format(fmt::runtime(twice), "kv1")));
  EXPECT_THROW(parse(fmt::format(fmt::runtime(twice), "kv")), Error);
}

TEST(Compact, DropsDeadOperatorsAndKeepsStores) {
  Graph graph = attention_block();
  graph.outputs[0] = graph.ops[2].outputs[0];  // neg: the add is dead now
  compact(graph);
  EXPECT_NO_THROW(verify(graph));
  EXPECT_EQ(graph.ops.size(), 3u);
  graph.outputs[0] = graph.inputs[0];
  compact(graph);
  EXPECT_NO_THROW(verify(graph));
  ASSERT_EQ(graph.ops.size(), 1u);
  EXPECT_EQ(graph.ops[0].name(), "kv_store");
  EXPECT_EQ(graph.inputs.size(), 3u);
}

TEST(Graph, UsersListsEachOperatorOnce) {
  const Graph graph = parse("graph g {\n input %x : f16[2]\n %y = add(%x, %x)\n %z = mul(%y, %x)\n return %z\n}");
  EXPECT_THAT(graph.users(),
              ::testing::ElementsAre(std::vector<int32_t>{0, 1}, std::vector<int32_t>{1}, std::vector<int32_t>{}));
  EXPECT_EQ(graph.find("y"), 1);
  EXPECT_EQ(graph.find("nobody"), std::nullopt);
}

}  // namespace
}  // namespace spyre::graph
