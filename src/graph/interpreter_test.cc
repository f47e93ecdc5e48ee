#include "graph/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Graph& two_ops() {
  static const Graph graph = parse(R"(graph g {
    input %x : f16[@2]
    param %w : f16[1]
    %y = add(%x, %w)
    %z = mul(%y, %y)
    return %z, %x
  })");
  return graph;
}

Bindings good() {
  const Graph& graph = two_ops();
  Bindings bindings;
  bindings.inputs = {Array::of(graph.type(graph.inputs[0]), {1, 2})};
  bindings.parameters = {Array::of(graph.type(graph.parameters[0]), {3})};
  return bindings;
}

std::string run_error(const Graph& graph, const Bindings& bindings) {
  try {
    Interpreter(EvalMode::kExact).run(graph, bindings);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Interpreter, RunsAndReturnsOutputsInOrder) {
  const std::vector<Array> outputs = Interpreter(EvalMode::kExact).run(two_ops(), good());
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_THAT(outputs[0].floats(), ElementsAre(16, 25));
  EXPECT_THAT(outputs[1].floats(), ElementsAre(1, 2));
}

TEST(Interpreter, KeepsEveryValueOnRequest) {
  std::vector<Array> kept;
  Interpreter(EvalMode::kExact).run(two_ops(), good(), &kept);
  ASSERT_EQ(kept.size(), two_ops().values.size());
  EXPECT_THAT(kept[*two_ops().find("y")].floats(), ElementsAre(4, 5));
}

TEST(Interpreter, ChecksBindings) {
  const auto with = [](auto&& damage) {
    Bindings bindings = good();
    damage(bindings);
    return run_error(two_ops(), bindings);
  };
  EXPECT_THAT(with([](Bindings& b) { b.inputs.clear(); }), HasSubstr("the graph has 1 inputs, 0 are bound"));
  EXPECT_THAT(with([](Bindings& b) { b.parameters.clear(); }), HasSubstr("1 parameters, 0 are bound"));
  EXPECT_THAT(with([](Bindings& b) { b.states.push_back(nullptr); }), HasSubstr("0 states, 1 are bound"));
  EXPECT_THAT(
      with([](Bindings& b) { b.inputs[0] = Array::of(Type::tensor(DType::kF16, std::vector<int64_t>{2}), {1, 2}); }),
      HasSubstr("%x is f16[@2], bound is f16[2]"));
  EXPECT_THAT(with([](Bindings& b) { b.parameters[0] = Array(); }), HasSubstr("%w is f16[1], bound is f32[]"));
  const Graph with_batch = parse("graph g {\n input %b : batch\n state %kv : kv f16[1,2]\n return\n}");
  Bindings bindings;
  bindings.inputs.resize(1);
  bindings.states = {nullptr};
  EXPECT_THAT(run_error(with_batch, bindings), HasSubstr("%b needs a batch"));
  AttentionBatch batch;
  bindings.batch = &batch;
  EXPECT_THAT(run_error(with_batch, bindings), HasSubstr("state %kv is not bound"));
  const Graph encoded = parse("graph g {\n param %w : f16[1] fp8\n return %w\n}");
  bindings = Bindings();
  bindings.parameters = {Array::of(encoded.type(0), {1})};
  EXPECT_THAT(run_error(encoded, bindings), HasSubstr("parameter %w has encoding fp8: only dense is built"));
}

TEST(Interpreter, RefusesAnArrayThatCannotBe) {
  const Graph graph =
      parse("graph g {\n input %x : f16[1]\n %y = broadcast(%x) {shape=[1099511627776]}\n return %y\n}");
  Bindings bindings;
  bindings.inputs = {Array::of(graph.type(0), {1})};
  EXPECT_THAT(run_error(graph, bindings), HasSubstr("the interpreter allows 2147483648"));
}

TEST(Array, ViewsAndReshapesShareElements) {
  const std::vector<float> data = {1, 2, 3, 4};
  const Array view = Array::view(Type::tensor(DType::kF16, std::vector<int64_t>{4}), data.data());
  EXPECT_EQ(view.floats().data(), data.data());
  EXPECT_EQ(view.reshaped(Type::tensor(DType::kF16, std::vector<int64_t>{2, 2})).floats().data(), data.data());
  Array read_only = view;
  EXPECT_THROW(read_only.mutable_floats(), Error);
  EXPECT_THROW(Array::of(Type::tensor(DType::kF16, std::vector<int64_t>{4}), {1}), Error);
}

}  // namespace
}  // namespace spyre::graph
