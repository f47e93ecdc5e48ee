#include "nn/layers/embedding.h"

namespace spyre::nn {

VocabParallelEmbedding::VocabParallelEmbedding(std::string class_name, const Options& options)
    : Module(std::move(class_name), options.path), options_(options) {
  const std::vector<int64_t> shape{options.vocab_size, options.hidden_size};
  weight_ = add_parameter({.name = options.path + ".weight",
                           .type = graph::Type::tensor(options.dtype, shape),
                           .loaded_shape = shape,
                           .sources = {{options.path + ".weight", 0, options.vocab_size}}});
}

ParallelLMHead::ParallelLMHead(std::string class_name, const Options& options, bool transposed_weight)
    : Module(std::move(class_name), options.path), options_(options) {
  const int64_t v = options.vocab_size, h = options.hidden_size;
  const std::vector<int64_t> seen = transposed_weight ? std::vector<int64_t>{h, v} : std::vector<int64_t>{v, h};
  Parameter weight{.name = options.path + ".weight",
                   .type = graph::Type::tensor(options.dtype, seen),
                   .loaded_shape = {v, h},
                   .transposed = transposed_weight};
  if (options.tied_to != nullptr) {
    weight.alias = &options.tied_to->weight();
  } else {
    weight.sources = {{options.path + ".weight", 0, v}};
  }
  weight_ = add_parameter(std::move(weight));
}

Value ParallelLMHead::forward(Tracer& t, Value x) const {
  return t.op("linear", {x, t.parameter(*weight_)}, {{"dtype", std::string("f32")}});
}

}  // namespace spyre::nn
