// Registries: which class stands behind a layer name, and which builder behind an architecture.
//
// Both are plain objects filled while a platform is set up, handed to the model builder, and read-only afterwards.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/export.h"
#include "formats/model_config.h"

namespace spyre::nn {

// A base layer class L has a static kClassName and a struct L::Options. A platform replaces it by a class derived from
// L: registry.register_oot<RotaryEmbedding>([](const auto& options) { return std::make_unique<MyRotary>(options); });
class SPYRE_API LayerRegistry {
 public:
  template <typename L>
  using Factory = std::function<std::unique_ptr<L>(const typename L::Options&)>;

  // Throws kFailedPrecondition when the class has been replaced already.
  template <typename L>
  void register_oot(Factory<L> factory) {
    if (!factories_.emplace(L::kClassName, std::move(factory)).second) {
      throw_error(ErrorCode::kFailedPrecondition, "layer class {} is replaced twice", L::kClassName);
    }
  }

  template <typename L>
  std::unique_ptr<L> make(const typename L::Options& options) const {
    const auto found = factories_.find(L::kClassName);
    if (found == factories_.end()) return std::make_unique<L>(options);
    return std::any_cast<const Factory<L>&>(found->second)(options);
  }

  std::vector<std::string> replaced() const {
    std::vector<std::string> names;
    for (const auto& [name, factory] : factories_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, std::any> factories_;
};

class CausalLM;

// What a model is built from.
struct ModelBuildContext {
  const formats::ModelConfig& config;
  const LayerRegistry& layers;
  DType dtype;                // storage dtype of weights and activations
  int64_t max_model_len;      // rows of position-indexed buffers
  bool wide_residual = true;  // the residual stream in f32 whatever |dtype| is (layers/norm.h)
};

class SPYRE_API ModelRegistry {
 public:
  using Builder = std::function<std::unique_ptr<CausalLM>(const ModelBuildContext&)>;

  // The architectures that the project itself knows.
  static ModelRegistry built_in();

  // A new architecture. Throws kFailedPrecondition when it is known already.
  void register_model(const std::string& architecture, Builder builder);
  // A platform's adaptation of a known architecture. Throws kNotFound, listing what is known, when the host does not
  // know it: a rename must fail here, not fall through to the unadapted class.
  void adapt_model(const std::string& architecture, Builder builder);

  // Throws kUnsupported, listing what is known, for an unknown architecture.
  std::unique_ptr<CausalLM> build(const ModelBuildContext& context) const;
  std::vector<std::string> architectures() const;

 private:
  std::map<std::string, Builder> builders_;
};

}  // namespace spyre::nn
