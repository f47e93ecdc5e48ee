// The two ends of a language model: token embedding and output head, which may share one weight.
#pragma once

#include <string>

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

class SPYRE_API VocabParallelEmbedding : public Module {
 public:
  struct Options {
    std::string path;
    int64_t vocab_size = 0, hidden_size = 0;
    DType dtype = DType::kF32;
  };
  static constexpr const char* kClassName = "VocabParallelEmbedding";
  explicit VocabParallelEmbedding(const Options& options) : VocabParallelEmbedding(kClassName, options) {}

  virtual Value forward(Tracer& t, Value ids) const { return t.gather_rows(t.parameter(*weight_), ids); }
  const Parameter& weight() const { return *weight_; }
  const Options& options() const { return options_; }

 protected:
  VocabParallelEmbedding(std::string class_name, const Options& options);

  Options options_;
  Parameter* weight_;  // [vocab, hidden]
};

// y = x W^T, W [vocab, hidden]. Logits leave in fp32, straight from the accumulator: rounding them to 16 bits would
// cost up to 2^-6 of log-probability at |logit| >= 16.
class SPYRE_API ParallelLMHead : public Module {
 public:
  struct Options {
    std::string path;
    int64_t vocab_size = 0, hidden_size = 0;
    const VocabParallelEmbedding* tied_to = nullptr;  // shares its weight
    DType dtype = DType::kF32;
  };
  static constexpr const char* kClassName = "ParallelLMHead";
  explicit ParallelLMHead(const Options& options) : ParallelLMHead(kClassName, options, false) {}

  virtual Value forward(Tracer& t, Value x) const;

 protected:
  ParallelLMHead(std::string class_name, const Options& options, bool transposed_weight);

  Options options_;
  Parameter* weight_;
};

// Hands logits over: slices what a padded head adds (nothing here), scales, and leaves them where the sampler reads.
class SPYRE_API LogitsProcessor : public Module {
 public:
  struct Options {
    std::string path;
    double scale = 1.0;
  };
  static constexpr const char* kClassName = "LogitsProcessor";
  explicit LogitsProcessor(const Options& options) : Module(kClassName, options.path), options_(options) {}

  virtual Value forward(Tracer& t, const ParallelLMHead& head, Value hidden) const {
    const Value logits = head.forward(t, hidden);
    if (options_.scale == 1.0) return logits;
    return t.op("scale", {logits}, {{"factor", options_.scale}});
  }

 protected:
  Options options_;
};

}  // namespace spyre::nn
