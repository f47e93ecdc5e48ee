// Rotary position embedding, neox form (halves), over the whole head.
//
// The table is a buffer built on the host at construction: [max positions, D], cosines in the first D/2 columns, sines
// in the last. gather() picks the step's rows once; apply() rotates q or k with them in every layer.
#pragma once

#include <string>
#include <vector>

#include "formats/model_config.h"
#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API RotaryEmbedding : public Module {
 public:
  struct Options {
    std::string path;
    int64_t head_size = 0;
    int64_t max_positions = 0;
    formats::RopeConfig rope;               // theta and scaling
    std::vector<float> frequency_divisors;  // a GGUF file's own scaling, one per pair; empty = none
    DType dtype = DType::kF32;
  };
  static constexpr const char* kClassName = "RotaryEmbedding";
  explicit RotaryEmbedding(const Options& options) : RotaryEmbedding(kClassName, options) { build_cache(); }

  virtual Value gather(Tracer& t, Value positions) const;
  virtual Value apply(Tracer& t, Value x, Value rows) const;  // x [@T, heads, head size]

  // theta^(-2i/D), scaled as |rope| says ("default", "linear", "llama3", "yarn"). Throws kUnsupported for another type.
  static std::vector<float> inverse_frequencies(const formats::RopeConfig& rope, int64_t head_size);

 protected:
  // Inverse frequencies of this layer, a file's own divisors applied.
  std::vector<float> frequencies() const;

  RotaryEmbedding(std::string class_name, const Options& options)
      : Module(std::move(class_name), options.path), options_(options) {}

  // The table is made on the host while the model is built: what a config may ask for is bounded.
  static constexpr int64_t kMaxTableBytes = int64_t{1} << 30;
  // Throws kUnsupported for an odd head size, kResourceExhausted for a table of more than kMaxTableBytes.
  void check_table(int64_t bytes_per_position) const;

  // cos and sin of (position, i): fp32 angle, double cosine, rounded to fp32, times the scaling's attention factor
  // (docs/numerics.md §5).
  std::pair<float, float> cos_sin(int64_t position, float inverse_frequency) const;

  Options options_;
  Parameter* cache_ = nullptr;

 private:
  void build_cache();
};

// Stores |x| as an element of |dtype| at |index| of |tensor|.
SPYRE_API void store_float(HostTensor& tensor, int64_t index, float x);

}  // namespace spyre::nn
