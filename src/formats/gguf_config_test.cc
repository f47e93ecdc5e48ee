// The families that GGUF files are read for: their keys as Hugging Face's, their names, and the order of Q's rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/hostile_test_util.h"
#include "formats/tensor_names.h"

namespace spyre::formats {
namespace {

using ::testing::HasSubstr;

std::string seed(const std::string& name) {
  return std::string(SPYRE_TEST_DATA) + "/fuzz/gguf/" + name;
}

// The first element of each row, which the fixture filled with the number of the row in the file.
std::vector<float> row_numbers(const Checkpoint& checkpoint) {
  const TensorInfo* q = checkpoint.find("model.layers.0.self_attn.q_proj.weight");
  if (q == nullptr) return {};
  std::vector<float> all(static_cast<size_t>(q->elements())), rows;
  checkpoint.read(*q, DType::kF32, std::as_writable_bytes(std::span(all)));
  for (size_t r = 0; r < 16; ++r) rows.push_back(all[r * 16]);
  return rows;
}

TEST(GgufFamilies, Qwen2HasBiasesAndPlainRows) {
  const auto checkpoint = Checkpoint::open(seed("good-qwen2.gguf"));
  const ModelConfig& config = checkpoint->config();
  EXPECT_EQ(config.architectures, std::vector<std::string>{"Qwen2ForCausalLM"});
  EXPECT_EQ(config.model_type, "qwen2");
  EXPECT_FALSE(config.raw.contains("attention_bias"));  // the family always has them
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(checkpoint->find("model.layers.0.self_attn.q_proj.bias"));
  std::vector<float> plain(16);
  for (size_t i = 0; i < 16; ++i) plain[i] = static_cast<float>(i);
  EXPECT_EQ(row_numbers(*checkpoint), plain);
}

TEST(GgufFamilies, Qwen3HasNormsOfHeadsAndYarn) {
  const auto checkpoint = Checkpoint::open(seed("good-qwen3.gguf"));
  const ModelConfig& config = checkpoint->config();
  EXPECT_EQ(config.architectures, std::vector<std::string>{"Qwen3ForCausalLM"});
  EXPECT_EQ(config.raw.at("head_dim"), 8);
  EXPECT_EQ(config.raw.at("attention_bias"), false);
  EXPECT_EQ(config.rope.type, "yarn");
  EXPECT_EQ(config.rope.factor, 4.0);
  EXPECT_EQ(config.raw.at("rope_scaling").at("original_max_position_embeddings"), 1024);
  EXPECT_TRUE(checkpoint->find("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_TRUE(checkpoint->find("model.layers.0.self_attn.k_norm.weight"));
}

TEST(GgufFamilies, GraniteHasMultipliersAndInterleavedRows) {
  const auto checkpoint = Checkpoint::open(seed("good-granite.gguf"));
  const auto& raw = checkpoint->config().raw;
  EXPECT_EQ(raw.at("architectures"), nlohmann::json({"GraniteForCausalLM"}));
  EXPECT_EQ(raw.at("embedding_multiplier"), 12.0);
  EXPECT_EQ(raw.at("residual_multiplier"), 0.22);  // the decimal, not its fp32
  EXPECT_EQ(raw.at("attention_multiplier"), 0.0078125);
  EXPECT_EQ(raw.at("logits_scaling"), 16.0);
  EXPECT_EQ(raw.at("attention_bias"), false);
  // Heads of 8: the even rows of a head first.
  EXPECT_EQ(row_numbers(*checkpoint), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
}

TEST(GgufFamilies, MultipliersAreRefusedElsewhere) {
  std::string bytes = testing::slurp(seed("good-granite.gguf"));
  // The same keys under a family that has none of them. Both names have their length in the file, so a name of the
  // same length is put in place: there is none among the families, which is refused by name.
  size_t at = 0;
  while ((at = bytes.find("granite", at)) != std::string::npos) bytes.replace(at, 7, "gruyere");
  try {
    model_config_from_gguf(*GgufFile::from_bytes(std::as_bytes(std::span(bytes)), "x"));
    ADD_FAILURE() << "read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(),
                HasSubstr("'gruyere' is not supported; GGUF models are read for 'llama', 'qwen2', 'qwen3', "));
  }
}

TEST(GgufFamilies, NamesOfEachFamily) {
  const GgufFamily& llama = *find_gguf_family("llama");
  const GgufFamily& qwen = *find_gguf_family("qwen3");
  EXPECT_EQ(translate_gguf_name(llama, "blk.0.attn_k.bias", 1)->order, RowOrder::kKeyHeads);
  EXPECT_EQ(translate_gguf_name(qwen, "blk.0.attn_k.bias", 1)->order, RowOrder::kPlain);
  EXPECT_EQ(translate_gguf_name(qwen, "blk.12.attn_k_norm.weight", 13)->name,
            "model.layers.12.self_attn.k_norm.weight");
  EXPECT_FALSE(translate_gguf_name(qwen, "blk.0.attn_k_norm.bias", 1));
  EXPECT_FALSE(translate_gguf_name(qwen, "blk.1.attn_k_norm.weight", 1));
  EXPECT_EQ(find_gguf_family("gemma"), nullptr);
}

}  // namespace
}  // namespace spyre::formats
