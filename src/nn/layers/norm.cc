#include "nn/layers/norm.h"

namespace spyre::nn {

RMSNorm::RMSNorm(std::string class_name, const Options& options)
    : Module(std::move(class_name), options.path), eps_(options.eps), wide_residual_(options.wide_residual) {
  weight_ = add_parameter({.name = options.path + ".weight",
                           .type = graph::Type::tensor(options.dtype, std::vector<int64_t>{options.hidden_size}),
                           .loaded_shape = {options.hidden_size},
                           .sources = {{options.path + ".weight", 0, options.hidden_size}}});
}

Value RMSNorm::forward(Tracer& t, Value x) const {
  const DType wide = t.type(x).dtype;
  return t.convert(t.rms_norm(x, t.convert(t.parameter(*weight_), wide), eps_), weight_->type.dtype);
}

std::pair<Value, Value> RMSNorm::forward(Tracer& t, Value x, Value residual) const {
  if (wide_residual_) x = t.convert(x, DType::kF32);
  const Value sum = residual.valid() ? t.add(x, residual) : x;
  return {forward(t, sum), sum};
}

}  // namespace spyre::nn
