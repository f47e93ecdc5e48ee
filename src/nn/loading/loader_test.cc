#include "nn/loading/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/half.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Shapes;

class Sink : public WeightSink {
 public:
  void begin(const std::vector<const Parameter*>& parameters) override {
    for (const Parameter* parameter : parameters) announced[parameter->name] = parameter;
  }
  void accept(const Parameter& parameter, HostTensor weights) override {
    EXPECT_TRUE(announced.contains(parameter.name));
    EXPECT_EQ(weights.dtype, parameter.type.dtype);
    EXPECT_EQ(weights.shape, parameter.type.extents());
    EXPECT_TRUE(accepted.emplace(parameter.name, std::move(weights)).second) << parameter.name << " came twice";
  }
  std::map<std::string, const Parameter*> announced;
  std::map<std::string, HostTensor> accepted;
};

struct Loaded {
  std::unique_ptr<CausalLM> model;  // owns the parameters that the sink points to
  Sink sink;
  std::string error;
  ErrorCode code = ErrorCode::kInternal;
  LoadTotals last;
};

Loaded load(const nlohmann::json& json, const Shapes& shapes, DType dtype = DType::kF32,
            const std::map<std::string, std::string>& copies = {}) {
  const testing::CheckpointFolder folder(json, shapes, copies);
  const auto checkpoint = folder.open();
  Loaded result;
  result.model = testing::build(checkpoint->config(), {}, dtype);
  try {
    load_weights(*result.model, *checkpoint, result.sink, {.progress = [&](const LoadTotals& totals) {
      EXPECT_GE(totals.bytes_done, result.last.bytes_done);
      result.last = totals;
    }});
  } catch (const Error& error) {
    result.error = error.what();
    result.code = error.code();
  }
  return result;
}

// The value that CheckpointFolder gives to an element.
float element(const Shapes& shapes, const std::string& tensor, int64_t i) {
  return static_cast<float>(std::distance(shapes.begin(), shapes.find(tensor))) + static_cast<float>(i) / 1024;
}

TEST(Loader, FusedWeightsArePutTogetherInOrder) {
  const auto json = testing::tiny_config();
  const auto shapes = testing::tensors_of(json);
  const Loaded loaded = load(json, shapes);
  ASSERT_EQ(loaded.error, "");
  const std::string path = "model.layers.1.self_attn.";
  const HostTensor& qkv = loaded.sink.accepted.at(path + "qkv_proj.weight");
  ASSERT_EQ(qkv.shape, (std::vector<int64_t>{16 + 8 + 8, 12}));
  for (int64_t i = 0; i < 32 * 12; ++i) {
    const char* piece = i < 16 * 12 ? "q_proj.weight" : i < 24 * 12 ? "k_proj.weight" : "v_proj.weight";
    const int64_t first = i < 16 * 12 ? 0 : i < 24 * 12 ? 16 * 12 : 24 * 12;
    ASSERT_EQ(qkv.as<float>()[i], element(shapes, path + piece, i - first)) << i;
  }
  const HostTensor& gate_up = loaded.sink.accepted.at("model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(gate_up.as<float>()[0], element(shapes, "model.layers.0.mlp.gate_proj.weight", 0));
  EXPECT_EQ(gate_up.as<float>()[20 * 12], element(shapes, "model.layers.0.mlp.up_proj.weight", 0));
}

TEST(Loader, BuffersComeAlongAndProgressEndsAtTheTotal) {
  const auto json = testing::tiny_config();
  const Loaded loaded = load(json, testing::tensors_of(json));
  EXPECT_TRUE(loaded.sink.accepted.contains("model.rotary_emb.cos_sin_cache"));
  EXPECT_EQ(loaded.sink.accepted.size(), loaded.sink.announced.size());
  EXPECT_EQ(loaded.last.bytes_done, loaded.last.bytes_total);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : loaded.sink.accepted) bytes += static_cast<int64_t>(tensor.bytes());
  EXPECT_EQ(loaded.last.bytes_total, bytes);
}

TEST(Loader, ConvertsToTheModelsDtype) {
  const auto json = testing::tiny_config();
  const auto shapes = testing::tensors_of(json);
  const Loaded loaded = load(json, shapes, DType::kBF16);
  const HostTensor& norm = loaded.sink.accepted.at("model.norm.weight");
  EXPECT_EQ(norm.as<uint16_t>()[5], f32_to_bf16(element(shapes, "model.norm.weight", 5)));
}

TEST(Loader, TiedHeadIsAnAliasAndNeverLoaded) {
  auto json = testing::tiny_config();
  json["tie_word_embeddings"] = true;
  auto shapes = testing::tensors_of(json);
  const Loaded loaded = load(json, shapes);
  EXPECT_EQ(loaded.error, "");
  ASSERT_TRUE(loaded.sink.announced.contains("lm_head.weight"));
  EXPECT_EQ(loaded.sink.announced.at("lm_head.weight")->alias, loaded.sink.announced.at("model.embed_tokens.weight"));
  EXPECT_FALSE(loaded.sink.accepted.contains("lm_head.weight"));
  shapes["lm_head.weight"] = {31, 12};  // some files store it all the same
  EXPECT_EQ(load(json, shapes, DType::kF32, {{"lm_head.weight", "model.embed_tokens.weight"}}).error, "");
  const Loaded other = load(json, shapes);  // with values of its own: which of the two heads is meant?
  EXPECT_EQ(other.code, ErrorCode::kCorruptData);
  EXPECT_THAT(other.error, AllOf(HasSubstr("'lm_head.weight' differs"), HasSubstr("tie_word_embeddings")));
  shapes["lm_head.weight"] = {30, 12};
  EXPECT_THAT(load(json, shapes).error, HasSubstr("differs"));
}

TEST(Loader, MissingTensorIsNamed) {
  const auto json = testing::tiny_config();
  auto shapes = testing::tensors_of(json);
  shapes.erase("model.layers.1.mlp.up_proj.weight");
  const Loaded loaded = load(json, shapes);
  EXPECT_EQ(loaded.code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error, HasSubstr("model.layers.1.mlp.up_proj.weight"));
}

TEST(Loader, WrongShapeIsNamedWithBothShapes) {
  const auto json = testing::tiny_config();
  auto shapes = testing::tensors_of(json);
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{8, 13}, {9, 12}, {96}, {8, 12, 1}}) {
    shapes["model.layers.0.self_attn.k_proj.weight"] = wrong;
    const Loaded loaded = load(json, shapes);
    EXPECT_EQ(loaded.code, ErrorCode::kCorruptData);
    EXPECT_THAT(loaded.error, HasSubstr("model.layers.0.self_attn.k_proj.weight"));
    EXPECT_THAT(loaded.error, HasSubstr("[8, 12]"));
  }
}

TEST(Loader, UnusedTensorIsRefusedAndRotaryTablesAreNot) {
  const auto json = testing::tiny_config();
  auto shapes = testing::tensors_of(json);
  shapes["model.layers.0.self_attn.rotary_emb.inv_freq"] = {4};
  shapes["model.layers.0.self_attn.rotary_emb.cos_cached"] = {16, 8};
  shapes["model.rotary_emb.sin_cached"] = {16, 8};
  EXPECT_EQ(load(json, shapes).error, "");
  shapes["model.layers.0.self_attn.q_proj.bias"] = {16};  // the config says there are no biases
  const Loaded loaded = load(json, shapes);
  EXPECT_EQ(loaded.code, ErrorCode::kUnsupported);
  EXPECT_THAT(loaded.error, HasSubstr("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_TRUE(loaded.sink.accepted.empty()) << "refused before the first tensor is read";
}

TEST(Loader, BiasesAreLoadedWhenTheConfigSaysSo) {
  auto json = testing::tiny_config(1);
  json["attention_bias"] = true;
  auto shapes = testing::tensors_of(json);
  const std::string path = "model.layers.0.self_attn.";
  shapes[path + "q_proj.bias"] = {16};
  shapes[path + "k_proj.bias"] = shapes[path + "v_proj.bias"] = {8};
  shapes[path + "o_proj.bias"] = {12};
  const Loaded loaded = load(json, shapes);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.sink.accepted.at(path + "qkv_proj.bias").as<float>()[16], element(shapes, path + "k_proj.bias", 0));
}

// Keeps the slices of each parameter side by side, as a device does.
class SliceSink : public Sink {
 public:
  explicit SliceSink(int64_t rows) : rows_(rows) {}
  void begin(const std::vector<const Parameter*>& parameters) override {
    Sink::begin(parameters);
    for (const Parameter* parameter : parameters) {
      if (!parameter->sources.empty()) {
        joined[parameter->name] = HostTensor::allocate(parameter->type.dtype, parameter->loaded_shape);
      }
    }
  }
  int64_t slice_rows(const Parameter&) const override { return rows_; }
  void accept_slice(const Parameter& parameter, int64_t first_row, const HostTensor& weights) override {
    const HostTensor& whole = joined.at(parameter.name);
    ASSERT_GT(weights.shape.at(0), 0);
    ASSERT_LE(weights.shape.at(0), rows_);
    const size_t row_bytes = weights.bytes() / static_cast<size_t>(weights.shape[0]);
    std::memcpy(whole.data.get() + static_cast<size_t>(first_row) * row_bytes, weights.data.get(), weights.bytes());
    if (parameter.name == fails_at) throw_error(ErrorCode::kResourceExhausted, "no room for {}", fails_at);
  }
  std::map<std::string, HostTensor> joined;
  std::string fails_at;

 private:
  int64_t rows_;
};

TEST(Loader, SlicesMakeUpEachParameterOnAnyTeam) {
  const auto json = testing::tiny_config();
  const auto shapes = testing::tensors_of(json);
  const testing::CheckpointFolder folder(json, shapes);
  const auto checkpoint = folder.open();
  const auto model = testing::build(checkpoint->config());
  Sink whole;
  load_weights(*model, *checkpoint, whole);
  for (int threads : {0, 1, 3}) {
    for (int64_t rows : {1, 5, 64}) {
      SCOPED_TRACE(fmt::format("{} threads, slices of {}", threads, rows));
      const auto team = threads > 0 ? std::make_unique<ThreadTeam>(threads) : nullptr;
      SliceSink sink(rows);
      LoadTotals last;
      load_weights(*model, *checkpoint, sink, {.team = team.get(), .progress = [&](const LoadTotals& totals) {
                                                 EXPECT_GE(totals.bytes_done, last.bytes_done);
                                                 last = totals;
                                               }});
      EXPECT_EQ(last.bytes_done, last.bytes_total);
      ASSERT_EQ(sink.joined.size() + sink.accepted.size(), whole.accepted.size());  // buffers come whole
      for (const auto& [name, tensor] : sink.joined) {
        const HostTensor& expected = whole.accepted.at(name);
        ASSERT_EQ(tensor.shape, expected.shape);
        EXPECT_EQ(std::memcmp(tensor.data.get(), expected.data.get(), expected.bytes()), 0) << name;
      }
    }
  }
}

TEST(Loader, AnErrorWithASliceOrFromProgressEndsTheLoading) {
  const auto json = testing::tiny_config();
  const testing::CheckpointFolder folder(json, testing::tensors_of(json));
  const auto checkpoint = folder.open();
  const auto model = testing::build(checkpoint->config());
  ThreadTeam team(2);
  SliceSink sink(2);
  sink.fails_at = "model.layers.0.mlp.down_proj.weight";
  try {
    load_weights(*model, *checkpoint, sink, {.team = &team});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr(sink.fails_at));
  }
  SliceSink other(2);
  EXPECT_THROW(load_weights(*model, *checkpoint, other,
                            {.team = &team,
                             .progress = [](const LoadTotals&) { throw_error(ErrorCode::kCancelled, "enough"); }}),
               Error);
}

}  // namespace
}  // namespace spyre::nn
