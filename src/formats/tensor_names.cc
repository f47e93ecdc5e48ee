#include "formats/tensor_names.h"

#include <charconv>

namespace spyre::formats {
namespace {

constexpr GgufFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM", /*interleaved=*/true, /*bias_keys=*/2},  // Mistral's files, too
    {"qwen2", "Qwen2ForCausalLM", /*interleaved=*/false},
    {"qwen3", "Qwen3ForCausalLM", /*interleaved=*/false, /*bias_keys=*/1, /*has_multipliers=*/false,
     /*needs_head_dim=*/true},
    {"granite", "GraniteForCausalLM", /*interleaved=*/true, /*bias_keys=*/2, /*has_multipliers=*/true},
};

struct Rule {
  std::string_view gguf, hugging_face;
  RowOrder order = RowOrder::kPlain;
};

constexpr Rule kModel[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                           {"output_norm.weight", "model.norm.weight"},
                           {"output.weight", "lm_head.weight"},
                           {"rope_freqs.weight", ""}};

constexpr Rule kLayer[] = {{"attn_norm", "input_layernorm"},
                           {"attn_q", "self_attn.q_proj", RowOrder::kQueryHeads},
                           {"attn_k", "self_attn.k_proj", RowOrder::kKeyHeads},
                           {"attn_v", "self_attn.v_proj"},
                           {"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"},
                           {"attn_output", "self_attn.o_proj"},
                           {"ffn_norm", "post_attention_layernorm"},
                           {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"}};

}  // namespace

const GgufFamily* find_gguf_family(std::string_view name) {
  for (const GgufFamily& family : kFamilies)
    if (name == family.name) return &family;
  return nullptr;
}

std::string gguf_families() {
  std::string names;
  for (const GgufFamily& family : kFamilies) names += (names.empty() ? "'" : ", '") + std::string(family.name) + "'";
  return names;
}

std::optional<TranslatedName> translate_gguf_name(const GgufFamily& family, std::string_view name, int64_t layers) {
  for (const Rule& rule : kModel)
    if (rule.gguf == name) return TranslatedName{std::string(rule.hugging_face)};
  if (!name.starts_with("blk.")) return std::nullopt;
  name.remove_prefix(4);
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const std::string number(name.data(), end);
  // One spelling per layer ("01" would make two names equal).
  if (error != std::errc() || layer < 0 || layer >= layers || number != std::to_string(layer)) return std::nullopt;
  name.remove_prefix(number.size());
  const size_t dot = name.rfind('.');
  if (!name.starts_with('.') || dot == 0) return std::nullopt;
  const std::string_view part = name.substr(1, dot - 1), kind = name.substr(dot);
  for (const Rule& rule : kLayer) {
    if (rule.gguf != part) continue;
    if (kind != ".weight" && (kind != ".bias" || part.ends_with("norm"))) return std::nullopt;
    return TranslatedName{"model.layers." + number + "." + std::string(rule.hugging_face) + std::string(kind),
                          family.interleaved ? rule.order : RowOrder::kPlain};
  }
  return std::nullopt;
}

}  // namespace spyre::formats
