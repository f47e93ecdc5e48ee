// The layers that the Spyre platform puts in the place of base layers. What each changes is named here; everything else
// is inherited.
#pragma once

#include <memory>
#include <string>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/rotary.h"
#include "nn/registry.h"

namespace spyre::layers {

// The weight is stored as it is multiplied, [in, out]: on the card a matmul with a transposed weight has to re-lay the
// weight each time (about 3.5x slower). The transpose happens once, on the host, as a view that the transfer reads.
template <typename Base>
class TransposedLinear : public Base {
 public:
  explicit TransposedLinear(const typename Base::Options& options)
      : Base(std::string("Spyre") + Base::kClassName, options, true) {}

  nn::Value forward(nn::Tracer& t, nn::Value x) const override {
    const nn::Value y = t.matmul(x, t.parameter(*this->weight_));
    return this->bias_ ? t.add(y, t.parameter(*this->bias_)) : y;
  }
  nn::HostTensor process_weights_after_loading(const nn::Parameter& parameter, nn::HostTensor weights) const override {
    return &parameter == this->weight_ ? weights.transposed() : weights;
  }
};

using SpyreColumnParallelLinear = TransposedLinear<nn::ColumnParallelLinear>;
using SpyreMergedColumnParallelLinear = TransposedLinear<nn::MergedColumnParallelLinear>;  // gate_up stays fused
using SpyreQKVParallelLinear = TransposedLinear<nn::QKVParallelLinear>;                    // q, k, v stay fused
using SpyreRowParallelLinear = TransposedLinear<nn::RowParallelLinear>;
using SpyreReplicatedLinear = TransposedLinear<nn::ReplicatedLinear>;

// The rotation as one 2x2 matrix per position and lane, [max positions, 2, 2, D/2], built before anything is compiled:
// the card cannot compute cos and sin, and half a head must be whole sticks (rule L-12; head padding provides it).
class SpyreRotaryEmbedding : public nn::RotaryEmbedding {
 public:
  // Throws what the base layer throws: kUnsupported for an odd head size, kResourceExhausted for a table too large.
  explicit SpyreRotaryEmbedding(const Options& options);
  nn::Value apply(nn::Tracer& t, nn::Value x, nn::Value rows) const override;

 private:
  void build_rotation_cache();
};

// The head's weight is [hidden, vocab] in sticks; a tied embedding reads the same memory (see worker/weight_store.h).
class SpyreParallelLMHead : public nn::ParallelLMHead {
 public:
  explicit SpyreParallelLMHead(const Options& options) : ParallelLMHead("SpyreParallelLMHead", options, true) {}
  nn::Value forward(nn::Tracer& t, nn::Value x) const override {
    return t.op("matmul", {x, t.parameter(*weight_)}, {{"dtype", std::string("f32")}});
  }
  nn::HostTensor process_weights_after_loading(const nn::Parameter&, nn::HostTensor weights) const override {
    return weights.transposed();
  }
};

// The embedding gathers on the device.
class SpyreVocabParallelEmbedding : public nn::VocabParallelEmbedding {
 public:
  explicit SpyreVocabParallelEmbedding(const Options& options)
      : VocabParallelEmbedding("SpyreVocabParallelEmbedding", options) {}
};

void register_layers(nn::LayerRegistry& registry);

}  // namespace spyre::layers
