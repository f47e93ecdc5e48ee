#include "plugins/spyre/sizing/model_shape.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "formats/config_reader.h"

namespace spyre::sizing {
namespace {

using formats::ConfigReader;
using nlohmann::json;
using Names = std::initializer_list<const char*>;

// Bounds that keep every product of sizes within 64 bits.
constexpr int64_t kMost = int64_t{1} << 20, kMostPositions = int64_t{1} << 24;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One shape under construction: reads keys by any of their names and notes what had to be assumed.
class ShapeReader {
 public:
  ShapeReader(const json& config, std::string name)
      : in_(config, std::move(name)), family_(in_.string("model_type").value_or("")) {}

  ModelShape read() {
    refuse_other_structures();
    shape_.family = family_.empty() ? first_architecture() : formats::printable(family_);
    read_kind();
    read_sizes();
    read_heads();
    read_mlp();
    read_ends();
    read_details();
    return std::move(shape_);
  }

 private:
  std::optional<int64_t> find(Names names, int64_t most = kMost) const {
    for (const char* name : names) {
      if (const auto value = in_.integer(name, 1, most)) return value;
    }
    return std::nullopt;
  }
  int64_t need(Names names, int64_t most = kMost) const {
    if (const auto value = find(names, most)) return *value;
    return in_.required_integer(*names.begin(), 1, most);
  }
  void assume(std::string text) { shape_.assumed.push_back(std::move(text)); }

  std::string first_architecture() const {
    const json* names = in_.find("architectures");
    if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string()) return "unnamed";
    return formats::printable(names->front().get<std::string>());
  }

  void refuse_other_structures() const {
    if (in_.boolean("is_encoder_decoder").value_or(false)) {
      throw_error(ErrorCode::kUnsupported, "{}: an encoder with a decoder is not sized: give one of the two",
                  in_.file());
    }
    if (is_one_of(family_, {"mamba", "mamba2", "rwkv", "jamba", "falcon_mamba", "bamba", "granitemoehybrid"})) {
      throw_error(ErrorCode::kUnsupported, "{}: '{}' has layers without attention, which are not sized", in_.file(),
                  formats::printable(family_));
    }
  }

  void read_kind() {
    const std::string architecture = first_architecture();
    const bool by_family =
        is_one_of(family_, {"bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "albert", "electra", "deberta",
                            "deberta-v2", "camembert", "nomic_bert", "modernbert", "new"});
    shape_.encoder = by_family && !in_.boolean("is_decoder").value_or(false);
    if (!by_family && architecture.find("CausalLM") == std::string::npos &&
        architecture.find("LMHead") == std::string::npos) {
      assume(fmt::format("'{}' is not known: taken as a decoder with a KV cache", shape_.family));
    }
    if (family_ == "albert") assume("albert shares one layer's weights; counted as if each had its own");
  }

  void read_sizes() {
    shape_.layers = need({"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, 1024);
    shape_.hidden = need({"hidden_size", "n_embd", "d_model", "dim"}, 65536);
    shape_.vocab = need({"vocab_size", "padded_vocab_size"});
    const auto positions =
        find({"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"},
             kMostPositions);
    shape_.positions = positions.value_or(2048);
    if (!positions) assume("2048 positions: the configuration gives no length");
  }

  void read_heads() {
    shape_.heads = need({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1024);
    shape_.kv_heads = find({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, 1024)
                          .value_or(in_.boolean("multi_query").value_or(false) ? 1 : shape_.heads);
    if (shape_.heads % shape_.kv_heads != 0) {
      throw_error(ErrorCode::kCorruptData, "{}: {} heads are no multiple of {} KV heads", in_.file(), shape_.heads,
                  shape_.kv_heads);
    }
    const auto head = find({"head_dim", "kv_channels", "attention_head_dim"}, 1024);
    if (!head && shape_.hidden % shape_.heads != 0) {
      throw_error(ErrorCode::kCorruptData, "{}: hidden size {} is no multiple of {} heads, and head_dim is not given",
                  in_.file(), shape_.hidden, shape_.heads);
    }
    shape_.head_size = head.value_or(shape_.hidden / shape_.heads);
  }

  void read_mlp() {
    const auto width = find({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "hidden_dim"});
    shape_.mlp = width.value_or(4 * shape_.hidden);
    if (!width)
      assume(fmt::format("an MLP of 4 x {} = {}: the configuration gives no width", shape_.hidden, shape_.mlp));
    const std::string act =
        in_.string("hidden_act")
            .value_or(in_.string("hidden_activation").value_or(in_.string("activation_function").value_or("")));
    const bool gated_family = family_.starts_with("gemma") || family_ == "modernbert" || family_ == "nomic_bert";
    shape_.gated_mlp = is_one_of(act, {"silu", "swish", "swiglu", "geglu"}) || gated_family;
    if (act.empty() && !gated_family) {
      shape_.gated_mlp = !shape_.encoder && has_rotary_keys();
      assume(fmt::format("an MLP {} gate: the configuration names no activation",
                         shape_.gated_mlp ? "with a" : "without a"));
    }
    shape_.experts = find({"num_local_experts", "num_experts", "n_routed_experts"}, 1024).value_or(0);
    if (shape_.experts == 0) return;
    shape_.experts_per_token =
        find({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"}, shape_.experts).value_or(2);
    shape_.mlp = find({"moe_intermediate_size"}).value_or(shape_.mlp);
    shape_.shared_mlp = find({"shared_expert_intermediate_size", "shared_intermediate_size"}).value_or(0);
    if (const auto shared = find({"n_shared_experts"}, 64)) shape_.shared_mlp = *shared * shape_.mlp;
    assume("every layer has the experts");
  }

  bool has_rotary_keys() const {
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "rotary_pct", "rotary_emb_base",
                            "rotary_emb_fraction", "partial_rotary_factor", "rotary_dim"}) {
      if (in_.find(key) != nullptr) return true;
    }
    return is_one_of(family_,
                     {"llama", "mistral", "qwen2", "qwen3", "granite", "gemma", "gemma2", "gemma3_text", "phi3"});
  }

  void read_ends() {
    shape_.rotary = has_rotary_keys();
    shape_.token_types = in_.integer("type_vocab_size", 0, 1024).value_or(0);
    if (shape_.encoder) return;
    const auto tied = in_.boolean("tie_word_embeddings");
    // Hugging Face's base class says true where the file is silent; these families' own classes say false.
    const bool untied = is_one_of(family_, {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
                                            "granite", "granitemoe", "phi", "phi3", "olmo2", "glm4", "deepseek_v3"});
    shape_.tied = tied.value_or(!untied);
    if (!tied) assume(fmt::format("{} head: the family's default", shape_.tied ? "a tied" : "an untied"));
  }

  void read_details() {
    const bool old_style = shape_.encoder || !shape_.rotary;  // layer norms and biases throughout
    const bool rms = in_.find("rms_norm_eps") != nullptr || !old_style;
    shape_.rms_norm = rms;
    shape_.qkv_bias = in_.boolean("attention_bias").value_or(old_style) || is_one_of(family_, {"qwen2", "qwen2_moe"});
    shape_.output_bias = in_.boolean("attention_bias").value_or(old_style);
    shape_.mlp_bias = in_.boolean("mlp_bias").value_or(old_style);
    shape_.head_norms = family_.starts_with("qwen3") || family_.starts_with("gemma3");
    if (in_.find("quantization_config") != nullptr) assume("quantised weights are counted with 16 bits each");
    if (in_.find("sliding_window") != nullptr && in_.find("layer_types") != nullptr) {
      assume("layers with a sliding window keep the keys of the whole context");
    }
  }

  ConfigReader in_;
  std::string family_;
  ModelShape shape_;
};

}  // namespace

ModelShape read_model_shape(const json& config, const std::string& name) {
  if (!config.is_object()) throw_error(ErrorCode::kCorruptData, "{}: not an object", name);
  // A model of several modalities keeps the language model's numbers one level down.
  if (!config.contains("hidden_size") && config.contains("text_config") && config["text_config"].is_object()) {
    ModelShape shape = ShapeReader(config["text_config"], name).read();
    shape.assumed.emplace_back("text_config alone: other modalities are left out");
    return shape;
  }
  return ShapeReader(config, name).read();
}

ParameterCounts count_parameters(const ModelShape& s) {
  ParameterCounts c;
  const int64_t q = s.heads * s.head_size, kv = s.kv_heads * s.head_size, norm = s.rms_norm ? s.hidden : 2 * s.hidden;
  c.embedding = s.vocab * s.hidden;
  c.positions = (s.rotary ? 0 : s.positions * s.hidden) + s.token_types * s.hidden;
  c.attention = s.layers * (s.hidden * (q + 2 * kv) + q * s.hidden + (s.qkv_bias ? q + 2 * kv : 0) +
                            (s.output_bias ? s.hidden : 0) + (s.head_norms ? 2 * s.head_size : 0));
  const int64_t matrices = s.gated_mlp ? 3 : 2;
  const auto mlp = [&](int64_t width) {
    return matrices * s.hidden * width + (s.mlp_bias ? (matrices - 1) * width + s.hidden : 0);
  };
  const int64_t router = s.experts * s.hidden, shared = s.shared_mlp > 0 ? mlp(s.shared_mlp) : 0;
  c.mlp = s.layers * (s.experts > 0 ? s.experts * mlp(s.mlp) + router + shared : mlp(s.mlp));
  // Two a layer; one after the last layer of a decoder, one after the embeddings of an encoder.
  c.norms = (2 * s.layers + 1) * norm;
  c.head = s.encoder || s.tied ? 0 : s.vocab * s.hidden;
  c.active = c.total();
  if (s.experts > 0) c.active -= s.layers * (s.experts - s.experts_per_token) * mlp(s.mlp);
  return c;
}

}  // namespace spyre::sizing
