// ModelConfig from GGUF keys: the keys are rewritten as the config.json Hugging Face would have, and go through the
// same checks. Key names: ggml's GGUF specification.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "formats/bytes.h"
#include "formats/dequantize.h"
#include "formats/gguf.h"
#include "formats/model_config.h"
#include "formats/tensor_names.h"

namespace spyre::formats {
namespace {

using nlohmann::json;

// GGUF stores fp32 where config.json has decimals: the shortest decimal that gives the same fp32 (1e-05, and not
// 9.999999747378752e-06), so that both forms of a model have equal configurations.
double shortest_decimal(double value) {
  return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  int64_t required(const char* key) const {
    const auto value = file_.get_int(prefix_ + key);
    if (!value) throw_error(ErrorCode::kCorruptData, "{}: key '{}{}' is missing", file_.name(), prefix_, key);
    return *value;
  }
  std::optional<int64_t> integer(const char* key) const { return file_.get_int(prefix_ + key); }
  std::optional<double> number(const char* key) const {
    const auto value = file_.get_float(prefix_ + key);
    if (!value) return std::nullopt;
    if (!std::isfinite(*value))
      throw_error(ErrorCode::kCorruptData, "{}: key '{}{}' is {}", file_.name(), prefix_, key, *value);
    return shortest_decimal(*value);
  }

  // Keys that change the maths in a way that is not built; `harmless` is the value that means nothing.
  void refuse_unless(const char* key, double harmless) const {
    if (!file_.find_key(prefix_ + key)) return;
    const double value = file_.find_key(prefix_ + key)->type == GgufType::kBool
                             ? static_cast<double>(*file_.get_bool(prefix_ + key))
                             : file_.get_float(prefix_ + key).value();
    if (value != harmless)
      throw_error(ErrorCode::kUnsupported, "{}: key '{}{}' = {} is not supported", file_.name(), prefix_, key, value);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

void refuse_unsupported_keys(const Keys& keys, const GgufFamily& family, int64_t head_dim) {
  for (const char* key : {"expert_count", "expert_used_count", "attention.clamp_kqv", "attention.max_alibi_bias",
                          "attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping",
                          "rope.scaling.yarn_log_multiplier"})
    keys.refuse_unless(key, 0);
  if (!family.has_multipliers) {
    for (const char* key : {"attention.scale", "logit_scale", "residual_scale", "embedding_scale"})
      keys.refuse_unless(key, 0);
  }
  keys.refuse_unless("attention.causal", 1);
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"})
    keys.refuse_unless(key, 1);
  keys.refuse_unless("use_parallel_residual", 0);
  keys.refuse_unless("rope.dimension_count", static_cast<double>(head_dim));
  keys.refuse_unless("attention.value_length", static_cast<double>(head_dim));
}

json rope_scaling(const GgufFile& file, const Keys& keys, const std::string& arch) {
  const std::string type(file.get_string(arch + ".rope.scaling.type").value_or(""));
  if (type == "none") return nullptr;
  auto factor = keys.number("rope.scaling.factor");
  if (!factor) factor = keys.number("rope.scale_linear");  // the name older files use
  if (type.empty() && (!factor || *factor == 0 || *factor == 1)) return nullptr;
  json scaling = {{"rope_type", type.empty() ? "linear" : printable(type)}};
  if (factor) scaling["factor"] = *factor;
  if (const auto length = keys.integer("rope.scaling.original_context_length"))
    scaling["original_max_position_embeddings"] = *length;
  if (const auto fast = keys.number("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = *fast;
  if (const auto slow = keys.number("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = *slow;
  return scaling;
}

// Granite's four. Its files keep the divisor of the logits as it is; without a scale of its own, attention has the
// usual one.
void add_multipliers(const Keys& keys, json& raw, int64_t head_dim) {
  const auto scale = [&](const char* key, double absent) {
    const double value = keys.number(key).value_or(0);
    return value == 0 ? absent : value;
  };
  raw["embedding_multiplier"] = scale("embedding_scale", 1.0);
  raw["residual_multiplier"] = scale("residual_scale", 1.0);
  raw["logits_scaling"] = scale("logit_scale", 1.0);
  raw["attention_multiplier"] = scale("attention.scale", 1.0 / std::sqrt(static_cast<double>(head_dim)));
}

// The embedding has a row per token; a tokenizer may name fewer (padding), never more.
int64_t vocabulary(const GgufFile& file, const Keys& keys) {
  const size_t tokens = file.get_array("tokenizer.ggml.tokens").value_or(GgufArray()).size();
  if (const GgufTensor* embedding = file.find_tensor("token_embd.weight")) {
    if (embedding->rank != 2)
      throw_error(ErrorCode::kCorruptData, "{}: tensor 'token_embd.weight' has rank {}, not 2", file.name(),
                  embedding->rank);
    if (tokens > embedding->dims[1])
      throw_error(ErrorCode::kCorruptData, "{}: {} tokens, but 'token_embd.weight' has {} rows", file.name(), tokens,
                  embedding->dims[1]);
    return static_cast<int64_t>(std::min<uint64_t>(embedding->dims[1], INT64_MAX));
  }
  return tokens ? static_cast<int64_t>(tokens) : keys.required("vocab_size");
}

std::optional<std::vector<float>> freq_factors(const GgufFile& file, int64_t head_dim) {
  const GgufTensor* tensor = file.find_tensor("rope_freqs.weight");
  if (!tensor) return std::nullopt;
  if (tensor->type != static_cast<uint32_t>(GgmlType::kF32) || tensor->rank != 1 ||
      tensor->dims[0] * 2 != static_cast<uint64_t>(head_dim))
    throw_error(ErrorCode::kCorruptData, "{}: tensor 'rope_freqs.weight' is {} with {} elements, not F32 with {}",
                file.name(), find_ggml_type(tensor->type)->name, tensor->dims[0], head_dim / 2);
  std::vector<float> factors(tensor->dims[0]);
  widen_f32(file.data(*tensor).data(), factors.size(), factors.data());
  for (size_t i = 0; i < factors.size(); ++i)
    if (!(factors[i] > 0 && std::isfinite(factors[i])))
      throw_error(ErrorCode::kCorruptData, "{}: tensor 'rope_freqs.weight': element {} is {}", file.name(), i,
                  factors[i]);
  return factors;
}

// The type of the matrices, if they agree on a float type; a quantised file has none.
json matrix_dtype(const GgufFile& file) {
  std::optional<uint32_t> type;
  for (const GgufTensor& t : file.tensors()) {
    if (t.rank < 2) continue;
    if (type && *type != t.type) return nullptr;
    type = t.type;
  }
  if (!type) return nullptr;
  switch (static_cast<GgmlType>(*type)) {
    case GgmlType::kF32:
      return "float32";
    case GgmlType::kF16:
      return "float16";
    case GgmlType::kBF16:
      return "bfloat16";
    default:
      return nullptr;
  }
}

}  // namespace

ModelConfig model_config_from_gguf(const GgufFile& file) {
  const std::string arch(file.get_string("general.architecture").value_or(""));
  const GgufFamily* family = find_gguf_family(arch);
  if (!family)
    throw_error(ErrorCode::kUnsupported, "{}: general.architecture '{}' is not supported; GGUF models are read for {}",
                file.name(), printable(arch), gguf_families());
  if (const auto parts = file.get_int("split.count"); parts && *parts > 1)
    throw_error(ErrorCode::kUnsupported,
                "{}: one of {} parts (key 'split.count'); models split over several GGUF files "
                "are not read: merge them",
                file.name(), *parts);
  const Keys keys(file, arch + ".");
  const int64_t hidden = keys.required("embedding_length"), heads = keys.required("attention.head_count");
  json raw = {{"architectures", {family->architecture}},
              {"model_type", family->name},
              {"hidden_size", hidden},
              {"intermediate_size", keys.required("feed_forward_length")},
              {"num_hidden_layers", keys.required("block_count")},
              {"num_attention_heads", heads},
              {"num_key_value_heads", keys.integer("attention.head_count_kv").value_or(heads)},
              {"max_position_embeddings", keys.required("context_length")},
              {"vocab_size", vocabulary(file, keys)},
              {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon").value_or(1e-5)},
              {"rope_theta", keys.number("rope.freq_base").value_or(10000.0)},
              {"rope_scaling", rope_scaling(file, keys, arch)},
              {"hidden_act", "silu"},
              {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
              {"torch_dtype", matrix_dtype(file)}};
  if (family->bias_keys >= 1) raw["attention_bias"] = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  if (family->bias_keys >= 2) raw["mlp_bias"] = file.find_tensor("blk.0.ffn_gate.bias") != nullptr;
  auto head_dim = keys.integer("attention.key_length");
  // Hugging Face's default for this family is a number of its own.
  if (!head_dim && family->needs_head_dim && heads > 0) head_dim = hidden / heads;
  if (head_dim) raw["head_dim"] = *head_dim;
  const GgufTokenizerKeys tokenizer = file.tokenizer();
  if (tokenizer.bos_id) raw["bos_token_id"] = *tokenizer.bos_id;
  json eos = json::array();
  for (const auto& id : {tokenizer.eos_id, tokenizer.eot_id, tokenizer.eom_id})
    if (id) eos.push_back(*id);
  if (!eos.empty()) raw["eos_token_id"] = eos;
  if (family->has_multipliers) add_multipliers(keys, raw, head_dim.value_or(heads > 0 ? hidden / heads : 1));

  ModelConfig config = parse_model_config(raw.dump(), "", file.name(), "");
  refuse_unsupported_keys(keys, *family, config.head_dim);
  config.rope_freq_factors = freq_factors(file, config.head_dim);
  return config;
}

}  // namespace spyre::formats
