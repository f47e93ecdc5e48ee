#include "nn/registry.h"

#include <fmt/ranges.h>

#include "formats/bytes.h"
#include "nn/models/granite.h"
#include "nn/models/llama.h"
#include "nn/models/mistral.h"
#include "nn/models/qwen.h"

namespace spyre::nn {
namespace {

template <typename Model>
std::unique_ptr<CausalLM> build_model(const ModelBuildContext& context) {
  return std::make_unique<Model>(context);
}

}  // namespace

ModelRegistry ModelRegistry::built_in() {
  ModelRegistry registry;
  registry.register_model("GraniteForCausalLM", build_model<GraniteForCausalLM>);
  registry.register_model("LlamaForCausalLM", build_model<LlamaForCausalLM>);
  registry.register_model("MistralForCausalLM", build_model<MistralForCausalLM>);
  registry.register_model("Qwen2ForCausalLM", build_model<Qwen2ForCausalLM>);
  registry.register_model("Qwen3ForCausalLM", build_model<Qwen3ForCausalLM>);
  return registry;
}

void ModelRegistry::register_model(const std::string& architecture, Builder builder) {
  if (!builders_.emplace(architecture, std::move(builder)).second) {
    throw_error(ErrorCode::kFailedPrecondition, "architecture {} is registered twice", architecture);
  }
}

void ModelRegistry::adapt_model(const std::string& architecture, Builder builder) {
  const auto found = builders_.find(architecture);
  if (found == builders_.end()) {
    throw_error(ErrorCode::kNotFound, "cannot adapt architecture {}: the host does not know it; known: {}",
                architecture, fmt::join(architectures(), ", "));
  }
  found->second = std::move(builder);
}

std::unique_ptr<CausalLM> ModelRegistry::build(const ModelBuildContext& context) const {
  for (const std::string& architecture : context.config.architectures) {
    if (const auto found = builders_.find(architecture); found != builders_.end()) return found->second(context);
  }
  if (context.config.architectures.empty()) {
    throw_error(ErrorCode::kUnsupported, "the config names no architecture; known: {}",
                fmt::join(architectures(), ", "));
  }
  std::vector<std::string> asked;  // names from a file: shown on one line, and cut
  for (const std::string& name : context.config.architectures) asked.push_back(formats::printable(name));
  throw_error(ErrorCode::kUnsupported, "no model is built for architecture {}; known: {}", fmt::join(asked, ", "),
              fmt::join(architectures(), ", "));
}

std::vector<std::string> ModelRegistry::architectures() const {
  std::vector<std::string> names;
  for (const auto& [name, builder] : builders_) names.push_back(name);
  return names;
}

}  // namespace spyre::nn
