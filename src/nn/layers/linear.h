// Linear layers: y = x W^T + b, W as the checkpoint has it, [out, in]. The parallel classes keep vLLM's names and
// roles; with one rank they differ in how their rows are put together from checkpoint tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/tracer.h"

namespace spyre::nn {

// One named piece of a fused weight: rows of the checkpoint tensor <path>.weight (and .bias).
struct LinearPiece {
  std::string path;
  int64_t rows = 0;
};

struct LinearOptions {
  std::string path;  // of the layer: model.layers.0.self_attn.qkv_proj
  int64_t in_features = 0;
  std::vector<LinearPiece> pieces;  // in order; one for a plain layer
  bool bias = false;
  DType dtype = DType::kF32;

  int64_t out_features() const {
    int64_t rows = 0;
    for (const LinearPiece& piece : pieces) rows += piece.rows;
    return rows;
  }
};

class SPYRE_API LinearBase : public Module {
 public:
  // x [@T, in] -> [@T, out]. Pieces stay fused: callers slice the result.
  virtual Value forward(Tracer& t, Value x) const;

  int64_t in_features() const { return options_.in_features; }
  int64_t out_features() const { return options_.out_features(); }

 protected:
  LinearBase(std::string class_name, const LinearOptions& options, bool transposed_weight = false);

  LinearOptions options_;
  Parameter* weight_ = nullptr;  // [out, in], or [in, out] when a subclass transposes it
  Parameter* bias_ = nullptr;    // [out] or null
};

#define SPYRE_LINEAR_CLASS(Name)                                                 \
  class SPYRE_API Name : public LinearBase {                                     \
   public:                                                                       \
    using Options = LinearOptions;                                               \
    static constexpr const char* kClassName = #Name;                             \
    explicit Name(const Options& options) : LinearBase(kClassName, options) {}   \
                                                                                 \
   protected:                                                                    \
    Name(std::string class_name, const Options& options, bool transposed_weight) \
        : LinearBase(std::move(class_name), options, transposed_weight) {}       \
  }

SPYRE_LINEAR_CLASS(ColumnParallelLinear);        // out split over ranks
SPYRE_LINEAR_CLASS(MergedColumnParallelLinear);  // several column-parallel weights in one: gate_up
SPYRE_LINEAR_CLASS(QKVParallelLinear);           // q, k and v in one
SPYRE_LINEAR_CLASS(RowParallelLinear);           // in split over ranks, partial sums reduced
SPYRE_LINEAR_CLASS(ReplicatedLinear);            // whole on every rank

#undef SPYRE_LINEAR_CLASS

}  // namespace spyre::nn
