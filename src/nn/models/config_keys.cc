#include "nn/models/config_keys.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace spyre::nn {
namespace {

// Do not touch the maths of a forward pass at inference.
constexpr std::array<std::string_view, 39> kHarmless = {"_name_or_path",
                                                        "transformers_version",
                                                        "torch_dtype",
                                                        "dtype",
                                                        "use_cache",
                                                        "initializer_range",
                                                        "bos_token_id",
                                                        "eos_token_id",
                                                        "pad_token_id",
                                                        "unk_token_id",
                                                        "sep_token_id",
                                                        "cls_token_id",
                                                        "mask_token_id",
                                                        "return_dict",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "attention_dropout",
                                                        "hidden_dropout",
                                                        "embd_pdrop",
                                                        "resid_pdrop",
                                                        "attn_pdrop",
                                                        "dropout",
                                                        "gradient_checkpointing",
                                                        "architectures",
                                                        "model_type",
                                                        "auto_map",
                                                        "torchscript",
                                                        "is_llama_config",
                                                        "chunk_size_feed_forward",
                                                        "id2label",
                                                        "label2id",
                                                        "problem_type",
                                                        "task_specific_params",
                                                        "name_or_path",
                                                        "_attn_implementation",
                                                        "transformers.js_config",
                                                        "is_encoder_decoder",
                                                        "license",
                                                        "finetuning_task"};

// A key whose name contains one of these changes the maths unless its value is neutral.
constexpr std::array<std::string_view, 52> kTelling = {
    "multiplier", "scaling", "scale", "scalar", "softcap", "window", "rotary", "rope", "expert", "moe", "router",
    "quant", "lora", "alibi", "qk_norm", "qk_layernorm", "norm", "clip", "residual", "parallel", "layer_types", "bias",
    "act", "mup", "multi_query", "position", "mamba", "ssm", "sparse", "head",
    // parts of a network that Llama has not
    "attention_chunk", "attn_temperature", "attn_type", "attn_output_gate", "attn_layer", "full_att", "cross_attention",
    "linear_", "bidirectional", "sinks", "swiglu", "nope", "hybrid", "laurel", "altup", "per_layer_input", "kv_shared",
    "use_cla", "diff_att", "dense_replace", "dim_model_base", "conv_"};

bool neutral(const nlohmann::json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0.0 || value.get<double>() == 1.0;
  if (value.is_string()) return value.get<std::string>().empty();
  return value.empty();
}

// Keys for which false or 1 is a change: without them attention is causal, and its scale 1/sqrt(head size).
bool never_neutral(std::string_view key, const nlohmann::json& value) {
  if (key == "is_causal") return value == false;
  return (key == "attention_multiplier" || key == "query_pre_attn_scalar") && !value.is_null();
}

// Neutral values that are not caught by the general rule.
bool known_neutral(std::string_view key, const nlohmann::json& value) {
  if (key == "is_causal") return value == true;
  if (key == "layer_types" && value.is_array()) {
    return std::all_of(value.begin(), value.end(), [](const auto& t) { return t == "full_attention"; });
  }
  return false;
}

std::string shown(const nlohmann::json& value) {
  // error_handler_t::replace: a config may hold invalid UTF-8, which dump() would refuse.
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

void refuse_unbuilt_keys(const nlohmann::json& config, std::string_view architecture,
                         const std::vector<std::string_view>& handled) {
  for (const auto& [key, value] : config.items()) {
    if (std::find(handled.begin(), handled.end(), key) != handled.end()) continue;
    if (std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end()) continue;
    const bool changes = never_neutral(key, value);
    if (!changes && (neutral(value) || known_neutral(key, value))) continue;
    const bool telling = changes || std::any_of(kTelling.begin(), kTelling.end(), [&key = key](std::string_view part) {
                           return key.find(part) != std::string::npos;
                         });
    if (telling) {
      throw_error(ErrorCode::kUnsupported, "config key '{}' = {} changes the maths and is not built for {}", key,
                  shown(value), architecture);
    }
    log().info("config key '{}' = {} is not known and has no effect", key, shown(value));
  }
}

}  // namespace spyre::nn
