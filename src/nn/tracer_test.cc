#include "nn/tracer.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/layers/attention.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

Trace trace_of(const CausalLM& model, int64_t tokens, bool whole = false) {
  Tracer tracer(tokens, whole ? BlockSet{} : find_blocks(model));
  const Value hidden = model.forward(tracer);
  return tracer.finish({hidden});
}

void check_links(const Trace& trace) {
  for (size_t s = 0; s < trace.segments.size(); ++s) {
    const Segment& segment = trace.segments[s];
    graph::verify(segment.graph);
    ASSERT_EQ(segment.inputs.size(), segment.graph.inputs.size());
    ASSERT_EQ(segment.parameters.size(), segment.graph.parameters.size());
    ASSERT_EQ(segment.states.size(), segment.graph.states.size());
    for (size_t i = 0; i < segment.inputs.size(); ++i) {
      const InputSource& source = segment.inputs[i];
      if (!source.from_segment) continue;
      ASSERT_LT(source.segment, static_cast<int32_t>(s));
      const graph::Graph& from = trace.segments[source.segment].graph;
      ASSERT_LT(source.output, static_cast<int32_t>(from.outputs.size()));
      EXPECT_EQ(from.type(from.outputs[source.output]), segment.graph.type(segment.graph.inputs[i]));
    }
    for (size_t i = 0; i < segment.parameters.size(); ++i) {
      EXPECT_EQ(segment.parameters[i]->type, segment.graph.type(segment.graph.parameters[i]));
    }
  }
}

TEST(Tracer, TwoDistinctBlockGraphsWhateverTheDepth) {
  std::set<std::string> keys_of_all_depths;
  for (const int64_t layers : {2, 3, 9}) {
    const auto config = testing::parsed(testing::tiny_config(layers));
    const auto model = testing::build(config);
    const Trace trace = trace_of(*model, 4);
    check_links(trace);
    // The embedding and the rotary rows, the blocks, the final norm.
    ASSERT_EQ(std::ssize(trace.segments), layers + 2);
    EXPECT_EQ(trace.segments.front().block, nullptr);
    EXPECT_EQ(trace.segments.back().block, nullptr);
    std::set<std::string> keys;
    const ModuleList& list = *find_block_lists(*model)[0];
    for (int64_t i = 0; i < layers; ++i) {
      const Segment& segment = trace.segments[i + 1];
      EXPECT_EQ(segment.block, &list[i]);
      ASSERT_EQ(segment.states.size(), 1u);
      EXPECT_EQ(segment.states[0]->path(), "model.layers." + std::to_string(i) + ".self_attn.attn");
      keys.insert(graph::canonical_text(segment.graph));
    }
    EXPECT_EQ(keys.size(), 2u) << "the first block is given no residual, all others are equal";
    keys_of_all_depths.insert(keys.begin(), keys.end());
  }
  EXPECT_EQ(keys_of_all_depths.size(), 2u);
}

TEST(Tracer, KeysDependOnTheNumberOfTokensAndTheDtype) {
  const auto config = testing::parsed(testing::tiny_config());
  const auto model = testing::build(config), half = testing::build(config, {}, DType::kF16);
  const auto key = [](const CausalLM& m, int64_t tokens) {
    return graph::canonical_text(trace_of(m, tokens).segments[2].graph);
  };
  EXPECT_EQ(key(*model, 4), key(*model, 4));
  EXPECT_NE(key(*model, 4), key(*model, 5));
  EXPECT_NE(key(*model, 4), key(*half, 4));
}

TEST(Tracer, WithoutBlocksEverythingIsOneSegment) {
  const auto config = testing::parsed(testing::tiny_config(3));
  const auto model = testing::build(config);
  const Trace trace = trace_of(*model, 7, true);
  ASSERT_EQ(trace.segments.size(), 1u);
  check_links(trace);
  EXPECT_EQ(trace.segments[0].states.size(), 3u);
  for (const InputSource& source : trace.segments[0].inputs) EXPECT_FALSE(source.from_segment);
}

TEST(Tracer, StepInputsAreRecordedOnceEach) {
  const auto config = testing::parsed(testing::tiny_config(3));
  const auto model = testing::build(config);
  const Trace trace = trace_of(*model, 7, true);
  std::set<StepInput> inputs;
  for (const InputSource& source : trace.segments[0].inputs) {
    EXPECT_TRUE(inputs.insert(source.step_input).second);
  }
  EXPECT_EQ(inputs,
            (std::set<StepInput>{StepInput::kTokenIds, StepInput::kPositions, StepInput::kSlots, StepInput::kBatch}));
}

TEST(Tracer, LogitsLeaveInFp32) {
  const auto config = testing::parsed(testing::tiny_config());
  const auto model = testing::build(config, {}, DType::kBF16);
  Tracer tracer(3);
  const Value hidden = tracer.step_input(StepInput::kHidden, tracer.rows_type(DType::kBF16, {12}));
  const Trace trace = tracer.finish({model->compute_logits(tracer, hidden)});
  check_links(trace);
  const graph::Graph& graph = trace.segments[0].graph;
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f32[@3,31]");
}

// Blocks hand on a 16-bit result and what has been added up so far; only a model that keeps the original's numerics
// rounds the latter.
TEST(Tracer, TheResidualStreamIsFp32) {
  const auto config = testing::parsed(testing::tiny_config());
  for (const bool wide : {true, false}) {
    const LayerRegistry layers;
    const auto model = ModelRegistry::built_in().build(
        {.config = config, .layers = layers, .dtype = DType::kBF16, .max_model_len = 64, .wide_residual = wide});
    const Trace trace = trace_of(*model, 3);
    check_links(trace);
    for (size_t s = 1; s <= 2; ++s) {
      const graph::Graph& graph = trace.segments[s].graph;
      ASSERT_EQ(graph.outputs.size(), 2u);
      EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "bf16[@3,12]");
      EXPECT_EQ(graph.type(graph.outputs[1]).to_string(), wide ? "f32[@3,12]" : "bf16[@3,12]");
    }
    const graph::Graph& last = trace.segments[3].graph;
    EXPECT_EQ(last.type(last.outputs[0]).to_string(), "bf16[@3,12]");
  }
}

TEST(Tracer, AValueOfAnEarlierSegmentIsImportedOnce) {
  const auto config = testing::parsed(testing::tiny_config(2));
  const auto model = testing::build(config);
  const Trace trace = trace_of(*model, 4);
  // Block 1 reads: block 0's result and residual, the rotary rows, slots and batch.
  EXPECT_EQ(trace.segments[2].inputs.size(), 5u);
}

}  // namespace
}  // namespace spyre::nn
