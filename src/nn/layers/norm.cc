#include "nn/layers/norm.h"

namespace spyre::nn {

RMSNorm::RMSNorm(std::string class_name, const Options& options)
    : Module(std::move(class_name), options.path), eps_(options.eps) {
  weight_ = add_parameter({.name = options.path + ".weight",
                           .type = graph::Type::tensor(options.dtype, std::vector<int64_t>{options.hidden_size}),
                           .loaded_shape = {options.hidden_size},
                           .sources = {{options.path + ".weight", 0, options.hidden_size}}});
}

Value RMSNorm::forward(Tracer& t, Value x) const {
  return t.rms_norm(x, t.parameter(*weight_), eps_);
}

std::pair<Value, Value> RMSNorm::forward(Tracer& t, Value x, Value residual) const {
  const Value sum = t.add(x, residual);
  return {forward(t, sum), sum};
}

}  // namespace spyre::nn
