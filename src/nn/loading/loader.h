// From a checkpoint to a device, one tensor at a time: read, put together, let the layer transform, hand over. Peak
// memory is what the sink keeps plus one parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/export.h"
#include "formats/checkpoint.h"
#include "nn/module.h"

namespace spyre::nn {

// Where weights go. Called from one thread.
class SPYRE_API WeightSink {
 public:
  virtual ~WeightSink() = default;
  // All parameters that will be loaded, buffers and aliases included, before the first accept().
  virtual void begin(const std::vector<const Parameter*>& parameters) = 0;
  // |weights| has the shape of |parameter.type| (perhaps with strides) and its dtype. Never called for an alias.
  virtual void accept(const Parameter& parameter, HostTensor weights) = 0;
};

struct LoadTotals {
  int64_t bytes_done = 0, bytes_total = 0;
};

// Throws Error naming the tensor: kNotFound when one is missing, kCorruptData when a shape differs, kUnsupported when
// the checkpoint has a tensor that the model does not use (it would change the maths), rotary tables and the head of a
// tied model excepted.
SPYRE_API void load_weights(const Module& model, const formats::Checkpoint& checkpoint, WeightSink& sink,
                            const std::function<void(const LoadTotals&)>& progress = {});

}  // namespace spyre::nn
