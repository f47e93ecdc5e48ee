#include "nn/layers/linear.h"

namespace spyre::nn {

LinearBase::LinearBase(std::string class_name, const LinearOptions& options, bool transposed_weight)
    : Module(std::move(class_name), options.path), options_(options) {
  const int64_t in = options.in_features, out = options.out_features();
  std::vector<WeightSource> weights, biases;
  int64_t row = 0;
  for (const LinearPiece& piece : options.pieces) {
    weights.push_back({piece.path + ".weight", row, piece.rows});
    biases.push_back({piece.path + ".bias", row, piece.rows});
    row += piece.rows;
  }
  const std::vector<int64_t> seen = transposed_weight ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in};
  weight_ = add_parameter({.name = options.path + ".weight",
                           .type = graph::Type::tensor(options.dtype, seen),
                           .loaded_shape = {out, in},
                           .transposed = transposed_weight,
                           .sources = std::move(weights)});
  if (options.bias) {
    bias_ = add_parameter({.name = options.path + ".bias",
                           .type = graph::Type::tensor(options.dtype, std::vector<int64_t>{out}),
                           .loaded_shape = {out},
                           .sources = std::move(biases)});
  }
}

Value LinearBase::forward(Tracer& t, Value x) const {
  const Value y = t.linear(x, t.parameter(*weight_));
  return bias_ ? t.add(y, t.parameter(*bias_)) : y;
}

}  // namespace spyre::nn
