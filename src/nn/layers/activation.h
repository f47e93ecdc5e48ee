// SiluAndMul: silu(x[..., :d]) * x[..., d:] on the fused result of a gate_up projection.
#pragma once

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API SiluAndMul : public Module {
 public:
  struct Options {
    std::string path;
  };
  static constexpr const char* kClassName = "SiluAndMul";
  explicit SiluAndMul(const Options& options) : Module(kClassName, options.path) {}

  virtual Value forward(Tracer& t, Value x) const {
    const int64_t d = t.type(x).extent(-1) / 2;
    return t.mul(t.silu(t.slice_last(x, 0, d)), t.slice_last(x, d, d));
  }
};

}  // namespace spyre::nn
