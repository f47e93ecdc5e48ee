// Small Llama configurations and checkpoints on disk, for the tests of this room.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "nn/models/causal_lm.h"
#include "nn/registry.h"

namespace spyre::nn::testing {

// 2 heads of 8 over 1 KV head, hidden 12, MLP 20, 31 ids, 64 positions.
inline nlohmann::json tiny_config(int64_t layers = 2) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 12},
          {"intermediate_size", 20},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 8},
          {"vocab_size", 31},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false},
          {"torch_dtype", "float32"}};
}

inline formats::ModelConfig parsed(const nlohmann::json& config) {
  return formats::parse_model_config(config.dump(), "", "config.json", "");
}

inline std::unique_ptr<CausalLM> build(const formats::ModelConfig& config, const LayerRegistry& layers = {},
                                       DType dtype = DType::kF32) {
  return ModelRegistry::built_in().build({.config = config, .layers = layers, .dtype = dtype, .max_model_len = 64});
}

using Shapes = std::map<std::string, std::vector<int64_t>>;

// The tensors that a checkpoint of |config| has.
inline Shapes tensors_of(const nlohmann::json& config) {
  const int64_t h = config["hidden_size"], m = config["intermediate_size"], v = config["vocab_size"];
  const int64_t d = config["head_dim"], q = config["num_attention_heads"].get<int64_t>() * d;
  const int64_t kv = config["num_key_value_heads"].get<int64_t>() * d;
  Shapes shapes{{"model.embed_tokens.weight", {v, h}}, {"model.norm.weight", {h}}};
  if (!config["tie_word_embeddings"].get<bool>()) shapes["lm_head.weight"] = {v, h};
  for (int64_t i = 0; i < config["num_hidden_layers"].get<int64_t>(); ++i) {
    const std::string path = "model.layers." + std::to_string(i) + ".";
    shapes[path + "input_layernorm.weight"] = {h};
    shapes[path + "post_attention_layernorm.weight"] = {h};
    shapes[path + "self_attn.q_proj.weight"] = {q, h};
    shapes[path + "self_attn.k_proj.weight"] = {kv, h};
    shapes[path + "self_attn.v_proj.weight"] = {kv, h};
    shapes[path + "self_attn.o_proj.weight"] = {h, q};
    shapes[path + "mlp.gate_proj.weight"] = {m, h};
    shapes[path + "mlp.up_proj.weight"] = {m, h};
    shapes[path + "mlp.down_proj.weight"] = {h, m};
  }
  return shapes;
}

// A folder with config.json and model.safetensors; removed with the object. Element i of the n-th tensor (by name) is
// n + i / 1024, so that a row in the wrong place shows.
class CheckpointFolder {
 public:
  // `copies`: a tensor -> the one whose values it repeats.
  CheckpointFolder(const nlohmann::json& config, const Shapes& shapes,
                   const std::map<std::string, std::string>& copies = {}) {
    std::string name = (std::filesystem::temp_directory_path() / "spyre_nn_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
    std::ofstream(path_ / "config.json") << config.dump();
    nlohmann::ordered_json header;
    std::vector<float> values;
    for (const auto& [tensor, shape] : shapes) {
      const auto copied = copies.find(tensor);
      const auto n = std::distance(shapes.begin(), shapes.find(copied == copies.end() ? tensor : copied->second));
      const size_t begin = values.size() * sizeof(float);
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(n) + static_cast<float>(i) / 1024);
      header[tensor] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, values.size() * sizeof(float)}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream file(path_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << text;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  ~CheckpointFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  std::unique_ptr<formats::Checkpoint> open() const { return formats::Checkpoint::open(path_); }

 private:
  std::filesystem::path path_;
};

}  // namespace spyre::nn::testing
