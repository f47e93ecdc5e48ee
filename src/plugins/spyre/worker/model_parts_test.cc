#include "plugins/spyre/worker/model_parts.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/text.h"
#include "platform/instance.h"
#include "platform/testing/golden.h"
#include "plugins/spyre/device/entry_layout.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::worker {
namespace {

using device::ExecutionMode;

// A golden model as the platform builds it, without weights.
struct Built {
  platform::EngineConfig config;
  std::unique_ptr<nn::CausalLM> model;

  explicit Built(const std::filesystem::path& folder) {
    const plugin::SpyrePlatform platform;
    config.model = folder;
    config.max_model_len = 128;
    config.max_num_batched_tokens = 64;
    const platform::PreparedModel prepared = platform::prepare_model(platform, config);
    config = prepared.config;
    model = platform::build_model(platform, config, prepared.checkpoint->config());
  }
  ModelParts parts() const { return {*model, nn::find_blocks(*model), *config.dtype, config.token_buckets->back()}; }
};

// Of every architecture: the graphs of a bucket are what tracing for that bucket gives.
TEST(ModelParts, AnotherBucketIsTheSameTraceWithOtherRows) {
  for (const auto& folder : platform::testing::golden_folders()) {
    const Built built(platform::testing::load_golden(folder).model);
    const ModelParts parts = built.parts();
    for (const int64_t rows : {1, 2, 37, 64}) {
      nn::Tracer tracer(rows, nn::find_blocks(*built.model));
      const nn::Trace body = tracer.finish({built.model->forward(tracer)});
      nn::Tracer head_tracer(rows);
      const nn::Value hidden = head_tracer.step_input(
          nn::StepInput::kHidden, head_tracer.rows_type(*built.config.dtype, {built.model->hidden_size()}));
      const nn::Trace head = head_tracer.finish({built.model->compute_logits(head_tracer, hidden)});
      const nn::Trace* traces[] = {&body, &head};
      const TracedPart* of[] = {&parts.body(), &parts.head()};
      for (int i = 0; i < 2; ++i) {
        std::set<std::string> want, made;
        for (const nn::Segment& segment : traces[i]->segments) want.insert(graph::canonical_text(segment.graph));
        for (const Unit& unit : of[i]->units(rows)) made.insert(graph::canonical_text(unit.graph));
        EXPECT_EQ(made, want) << folder << ", " << rows << " rows";
        EXPECT_EQ(made.size(), of[i]->units(rows).size()) << "two units are equal";
      }
    }
  }
}

// The number of programs grows with the ladder, not with its square.
TEST(ModelParts, EachBucketHasItsProgramsAndOneSelection) {
  const Built built(platform::testing::golden_folders().front());
  const ModelParts parts = built.parts();
  compiler::Compiler compiler({.features = CpuFeatures::of(CpuLevel::kPortable)});
  const auto compile = [&](const Unit& unit) { return compiler.compile(unit.graph, unit.boundary); };
  std::vector<int64_t> artifacts;
  for (const int64_t rows : {1, 2, 8, 40, 64}) {
    const int64_t before = compiler.artifacts();
    const auto body = parts.body().compile(rows, compile);
    EXPECT_EQ(body.size(), parts.body().trace().segments.size());
    (void)parts.head().compile(rows, compile);
    const auto select = compile(parts.select_rows(rows));
    artifacts.push_back(compiler.artifacts() - before);
    // What a body gives is the beginning of what each selection reads.
    const device::TensorSpec& hidden = body[parts.body().trace().outputs[0].segment]->output_specs[0];
    EXPECT_EQ(hidden.layout, device::entry_layout(hidden.dtype, hidden.card()));
    EXPECT_EQ(select->input_specs[0].card()[0], built.config.token_buckets->back());
    EXPECT_EQ(select->input_specs[0].layout.device_size[1], hidden.layout.device_size[1]);
  }
  EXPECT_EQ(std::set<int64_t>(artifacts.begin(), artifacts.end()).size(), 1u);
}

// A program that gives its result by entry, and one that reads rows of what lies by entry, give the interpreter's bits
// on the card as on the host.
TEST(Boundary, ChangesWhereARowLiesAndNoBit) {
  const graph::Graph graph = graph::parse(R"(graph g {
    input %x : f16[@5,100]
    input %t : f16[9,100]
    input %ids : i32[@5]
    param %w : f16[100]
    %s = gather_rows(%t, %ids)
    %a = add(%x, %s)
    %y = rms_norm(%a, %w) {eps=1e-05}
    return %y
  })");
  const auto filled = [&](graph::ValueId value) {
    std::vector<float> values(static_cast<size_t>(graph.type(value).elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 29) / 8;
    return graph::Array::of(graph.type(value), std::move(values));
  };
  graph::Bindings bindings;
  bindings.inputs = {filled(graph.inputs[0]), filled(graph.inputs[1]),
                     graph::Array::of_ints(graph.type(graph.inputs[2]), {7, 0, 8, 3, 3})};
  bindings.parameters = {filled(graph.parameters[0])};
  compiler::Compiler compiler({.features = CpuFeatures::of(CpuLevel::kPortable)});
  const auto plain = compiler.compile(graph);
  const auto by_entry = compiler.compile(graph, {.axes = {}, .entry_inputs = {1}, .entry_outputs = {0}});
  EXPECT_NE(plain, by_entry);
  EXPECT_EQ(by_entry, compiler.compile(graph, {.axes = {}, .entry_inputs = {1}, .entry_outputs = {0}}));
  EXPECT_EQ(compiler.artifacts(), 2);
  EXPECT_EQ(by_entry->input_specs[1].layout.device_size, (std::vector<int64_t>{9, 2, 64}));
  EXPECT_EQ(by_entry->output_specs[0].layout.device_size, (std::vector<int64_t>{5, 2, 64}));
  EXPECT_EQ(plain->output_specs[0].layout.device_size, (std::vector<int64_t>{2, 5, 64}));
  device::SoftwareDevice host({}), checked({.mode = ExecutionMode::kChecked});
  const auto want = testing::run_on_device(host, *plain, bindings);
  for (device::SoftwareDevice* device : {&host, &checked}) {
    const auto got = testing::run_on_device(*device, *by_entry, bindings);
    EXPECT_TRUE(testing::equal_bits(got.at(0), want.at(0)));
  }
}

}  // namespace
}  // namespace spyre::worker
