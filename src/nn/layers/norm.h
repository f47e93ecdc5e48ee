// RMSNorm: y = x / sqrt(mean(x^2) + eps) * w over the last dimension, fp32 inside (docs/numerics.md §3), and the owner
// of the residual stream's precision: what blocks add to one another is kept in f32, what they compute with in their
// dtype.
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
    DType dtype = DType::kF32;  // of the weight and of the result
    bool wide_residual = true;  // false: the residual stream is rounded to |dtype|, as the original's is
  };
  static constexpr const char* kClassName = "RMSNorm";
  explicit RMSNorm(const Options& options) : RMSNorm(kClassName, options) {}

  // x in the weight's dtype, or in f32, which is then not rounded before the weight is applied.
  virtual Value forward(Tracer& t, Value x) const;
  // (norm(x + residual), x + residual): the second is the next residual, in f32 where the stream is wide. Without a
  // residual (the first layer's) x begins the stream.
  std::pair<Value, Value> forward(Tracer& t, Value x, Value residual) const;

 protected:
  RMSNorm(std::string class_name, const Options& options);

  double eps_;
  bool wide_residual_;
  Parameter* weight_;
};

}  // namespace spyre::nn
