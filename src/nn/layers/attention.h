// Attention over a paged KV cache. The layer is opaque to the block around it: it stores k and v, then attends.
#pragma once

#include <string>

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API Attention : public Module {
 public:
  struct Options {
    std::string path;
    int64_t heads = 0, kv_heads = 0, head_size = 0;
    double scale = 0;
    double softcap = 0;  // 0: none
    int64_t window = 0;  // 0: none
    DType dtype = DType::kF32;
  };
  static constexpr const char* kClassName = "Attention";
  explicit Attention(const Options& options) : Attention(kClassName, options) {}

  const Options& options() const { return options_; }
  graph::Type kv_type() const { return graph::Type::kv_cache(options_.dtype, options_.kv_heads, options_.head_size); }

  // q [@T, heads, D], k and v [@T, kv heads, D] -> [@T, heads * D]
  virtual Value forward(Tracer& t, Value q, Value k, Value v) const {
    const Value out = t.attend(*this, q, k, v, options_.scale, options_.softcap, options_.window);
    return t.reshape(out, {-1, options_.heads * options_.head_size});
  }

 protected:
  Attention(std::string class_name, const Options& options)
      : Module(std::move(class_name), options.path), options_(options) {}

  Options options_;
};

}  // namespace spyre::nn
