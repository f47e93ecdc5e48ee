// What a text generation model is to a platform: a module tree, a body and a head, both recorded through a Tracer.
#pragma once

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API CausalLM : public Module {
 public:
  using Module::Module;

  // The hidden states of every token, after the final norm: [@T, hidden].
  virtual Value forward(Tracer& t) const = 0;
  // Logits of the given rows: x [@R, hidden] -> f32 [@R, vocab].
  virtual Value compute_logits(Tracer& t, Value hidden) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual int64_t hidden_size() const = 0;
};

}  // namespace spyre::nn
