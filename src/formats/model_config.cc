#include "formats/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "formats/config_reader.h"
#include "formats/json.h"

namespace spyre::formats {
namespace {

using nlohmann::json;

constexpr int64_t kMaxHidden = 65536, kMaxIntermediate = 1 << 20, kMaxLayers = 1024, kMaxHeads = 1024,
                  kMaxHeadDim = 1024, kMaxVocab = 1 << 20, kMaxPositions = 1 << 24;

// Hugging Face's base class says true; these families' own classes say false.
bool tied_by_default(const std::string& model_type) {
  static constexpr std::array<std::string_view, 14> kUntied = {
      "llama",   "mistral",    "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
      "granite", "granitemoe", "phi",     "phi3",  "olmo2",     "glm4",  "deepseek_v3"};
  return std::find(kUntied.begin(), kUntied.end(), model_type) == kUntied.end();
}

std::optional<DType> read_dtype(const ConfigReader& in) {
  std::optional<std::string> name = in.string("dtype");
  const char* key = name ? "dtype" : "torch_dtype";
  if (!name) name = in.string("torch_dtype");
  if (!name || *name == "auto") return std::nullopt;
  const std::string bare = name->starts_with("torch.") ? name->substr(6) : *name;
  if (bare == "float32" || bare == "float") return DType::kF32;
  if (bare == "float16" || bare == "half") return DType::kF16;
  if (bare == "bfloat16") return DType::kBF16;
  throw_error(ErrorCode::kUnsupported, "{}: {} is '{}'; float32, float16 and bfloat16 are read", in.file(), key,
              printable(*name));
}

// What YaRN multiplies cosines and sines by, as Hugging Face works it out when the file does not say.
double yarn_attention_factor(const ConfigReader& in, double factor) {
  if (const auto given = in.number("attention_factor", 1e-3, 1e3)) return *given;
  const auto grown = [factor](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; };
  const double scale = in.number("mscale", 0, 1e3).value_or(0), all = in.number("mscale_all_dim", 0, 1e3).value_or(0);
  return scale > 0 && all > 0 ? grown(scale) / grown(all) : grown(1.0);
}

void read_yarn(const ConfigReader& in, int64_t max_positions, RopeConfig& rope) {
  rope.original_max_position = in.integer("original_max_position_embeddings", 1, kMaxPositions).value_or(max_positions);
  rope.attention_factor = yarn_attention_factor(in, rope.factor);
  // Zero means the default there too.
  const double fast = in.number("beta_fast", 0, 1e6).value_or(0), slow = in.number("beta_slow", 0, 1e6).value_or(0);
  rope.beta_fast = fast == 0 ? 32 : fast;
  rope.beta_slow = slow == 0 ? 1 : slow;
  if (rope.beta_fast < rope.beta_slow)
    throw_error(ErrorCode::kCorruptData, "{}: beta_fast {} is below beta_slow {}", in.file(), rope.beta_fast,
                rope.beta_slow);
  if (!(rope.theta > 1))
    throw_error(ErrorCode::kCorruptData, "{}: yarn with rope_theta 1 has no wavelengths", in.file());
  rope.truncate = in.boolean("truncate").value_or(true);
}

// What stands beside the rope object and serves as its default: rope_theta and partial_rotary_factor, where older
// checkpoints have them, and the context length.
struct RopeDefaults {
  double theta = 10000.0, partial_rotary_factor = 1.0;
  int64_t max_positions = 0;
};

RopeConfig read_rope(const ConfigReader& in, const RopeDefaults& defaults) {
  RopeConfig rope;
  rope.theta = in.number("rope_theta", 1.0, 1e15).value_or(defaults.theta);
  rope.partial_rotary_factor = in.number("partial_rotary_factor", 1e-3, 1.0).value_or(defaults.partial_rotary_factor);
  std::optional<std::string> type = in.string("rope_type");
  if (!type) type = in.string("type");
  rope.type = type.value_or("default");
  if (rope.type == "linear" || rope.type == "llama3" || rope.type == "yarn") {
    rope.factor = in.required_number("factor", 1e-3, 1e6);
  } else if (rope.type != "default") {
    rope.factor = in.number("factor", 1e-3, 1e6).value_or(1.0);
  }
  if (rope.type == "llama3") {
    rope.low_freq_factor = in.required_number("low_freq_factor", 1e-3, 1e6);
    rope.high_freq_factor = in.required_number("high_freq_factor", 1e-3, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      throw_error(ErrorCode::kCorruptData, "{}: high_freq_factor {} is not above low_freq_factor {}", in.file(),
                  rope.high_freq_factor, rope.low_freq_factor);
    rope.original_max_position = in.required_integer("original_max_position_embeddings", 1, kMaxPositions);
  }
  if (rope.type == "yarn") read_yarn(in, defaults.max_positions, rope);
  return rope;
}

// Three spellings: rope_theta with rope_scaling (null or an object); rope_parameters (transformers 5); rope_parameters
// with one object per kind of layer.
void read_ropes(const ConfigReader& in, ModelConfig& config) {
  const RopeDefaults defaults{.theta = in.number("rope_theta", 1.0, 1e15).value_or(10000.0),
                              .partial_rotary_factor = in.number("partial_rotary_factor", 1e-3, 1.0).value_or(1.0),
                              .max_positions = config.max_position_embeddings};
  const json* parameters = in.object("rope_parameters");
  const char* key = parameters ? "rope_parameters" : "rope_scaling";
  if (!parameters) parameters = in.object("rope_scaling");
  config.rope.theta = defaults.theta;
  config.rope.partial_rotary_factor = defaults.partial_rotary_factor;
  if (!parameters) return;
  const bool per_layer_type = !parameters->empty() && std::all_of(parameters->begin(), parameters->end(),
                                                                  [](const json& v) { return v.is_object(); });
  if (!per_layer_type) {
    config.rope = read_rope(ConfigReader(*parameters, in.file(), std::string(key) + "."), defaults);
    return;
  }
  if (parameters->size() > 16)
    throw_error(ErrorCode::kCorruptData, "{}: {} has {} kinds of layers; at most 16 are read", in.file(), key,
                parameters->size());
  for (const auto& [kind, object] : parameters->items()) {
    const std::string prefix = std::string(key) + "." + printable(kind, 40) + ".";
    config.rope_by_layer_type.emplace_back(kind, read_rope(ConfigReader(object, in.file(), prefix), defaults));
  }
}

// eos_token_id: an id, a list of ids, or null.
void read_eos(const ConfigReader& in, int64_t vocab, std::vector<int64_t>& out) {
  const json* value = in.find("eos_token_id");
  if (!value) return;
  if (!value->is_array()) {
    out.push_back(in.integer(*value, "eos_token_id", 0, vocab - 1));
    return;
  }
  if (value->size() > 1024)
    throw_error(ErrorCode::kCorruptData, "{}: eos_token_id lists {} ids; at most 1024 are read", in.file(),
                value->size());
  for (const json& id : *value) out.push_back(in.integer(id, "eos_token_id", 0, vocab - 1));
}

void read_sizes(const ConfigReader& in, ModelConfig& config) {
  config.hidden_size = in.required_integer("hidden_size", 1, kMaxHidden);
  config.intermediate_size = in.required_integer("intermediate_size", 1, kMaxIntermediate);
  config.num_hidden_layers = in.required_integer("num_hidden_layers", 1, kMaxLayers);
  config.num_attention_heads = in.required_integer("num_attention_heads", 1, kMaxHeads);
  config.num_key_value_heads = in.integer("num_key_value_heads", 1, kMaxHeads).value_or(config.num_attention_heads);
  config.vocab_size = in.required_integer("vocab_size", 1, kMaxVocab);
  config.max_position_embeddings = in.integer("max_position_embeddings", 1, kMaxPositions).value_or(2048);
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    throw_error(ErrorCode::kCorruptData, "{}: num_attention_heads {} is no multiple of num_key_value_heads {}",
                in.file(), config.num_attention_heads, config.num_key_value_heads);
  const auto head_dim = in.integer("head_dim", 1, kMaxHeadDim);
  if (!head_dim && config.hidden_size % config.num_attention_heads != 0)
    throw_error(ErrorCode::kCorruptData,
                "{}: hidden_size {} is no multiple of num_attention_heads {}, and head_dim is not given", in.file(),
                config.hidden_size, config.num_attention_heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_attention_heads);
  if (config.head_dim > kMaxHeadDim)
    throw_error(ErrorCode::kCorruptData, "{}: hidden_size {} / num_attention_heads {} makes heads of {}; at most {}",
                in.file(), config.hidden_size, config.num_attention_heads, config.head_dim, kMaxHeadDim);
}

void read_names(const ConfigReader& in, ModelConfig& config) {
  if (const json* names = in.find("architectures")) {
    if (!names->is_array() || names->size() > 16) in.wrong("architectures", *names, "a list of at most 16 names");
    for (const json& name : *names) {
      if (!name.is_string()) in.wrong("architectures", name, "a name");
      config.architectures.push_back(name.get<std::string>());
    }
  }
  config.model_type = in.string("model_type").value_or("");
}

void refuse_what_cannot_be_read(const ConfigReader& in) {
  if (const json* quantization = in.object("quantization_config")) {
    const ConfigReader inner(*quantization, in.file(), "quantization_config.");
    throw_error(ErrorCode::kUnsupported,
                "{}: quantization_config.quant_method '{}' is not read; use an unquantised checkpoint", in.file(),
                printable(inner.string("quant_method").value_or("?")));
  }
  if (in.find("text_config") && !in.find("hidden_size"))
    throw_error(ErrorCode::kUnsupported,
                "{}: text_config inside the configuration: models of several modalities are not read", in.file());
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view generation, const std::string& config_name,
                               const std::string& generation_name) {
  ModelConfig config;
  config.raw = parse_json_object(text, config_name);
  const ConfigReader in(config.raw, config_name);
  refuse_what_cannot_be_read(in);
  read_names(in, config);
  read_sizes(in, config);
  // Zero would divide by zero on a row of zeros; Hugging Face's own default for the Llama family is 1e-6.
  config.rms_norm_eps = in.number("rms_norm_eps", 1e-30, 0.999).value_or(1e-6);
  config.tie_word_embeddings = in.boolean("tie_word_embeddings").value_or(tied_by_default(config.model_type));
  config.hidden_act = in.string("hidden_act").value_or(in.string("hidden_activation").value_or("silu"));
  config.attention_bias = in.boolean("attention_bias").value_or(false);
  config.mlp_bias = in.boolean("mlp_bias").value_or(false);
  config.dtype = read_dtype(in);
  read_ropes(in, config);
  config.bos_token_id = in.integer("bos_token_id", 0, config.vocab_size - 1);
  read_eos(in, config.vocab_size, config.eos_token_ids);
  if (!generation.empty()) {
    const json tree = parse_json_object(generation, generation_name);
    read_eos(ConfigReader(tree, generation_name), config.vocab_size, config.eos_token_ids);
  }
  auto& eos = config.eos_token_ids;
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  return config;
}

}  // namespace spyre::formats
