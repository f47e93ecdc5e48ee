// RMSNorm: y = x / sqrt(mean(x^2) + eps) * w over the last dimension, fp32 inside (docs/numerics.md).
#pragma once

#include <string>
#include <utility>

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API RMSNorm : public Module {
 public:
  struct Options {
    std::string path;
    int64_t hidden_size = 0;
    double eps = 1e-6;
    DType dtype = DType::kF32;
  };
  static constexpr const char* kClassName = "RMSNorm";
  explicit RMSNorm(const Options& options) : RMSNorm(kClassName, options) {}

  virtual Value forward(Tracer& t, Value x) const;
  // (norm(x + residual), x + residual): the second is the next residual.
  std::pair<Value, Value> forward(Tracer& t, Value x, Value residual) const;

 protected:
  RMSNorm(std::string class_name, const Options& options);

  double eps_;
  Parameter* weight_;
};

}  // namespace spyre::nn
