// From a checkpoint to a device: read, put together, let the layer transform, hand over.
//
// The sink says of each parameter whether it wants it whole or in slices of rows. Slices are read, transformed and
// handed over by all members of a thread team at once, in the order in which they lie in the files: one thread waits
// for a file while another packs, and beside what the sink keeps there is one slice per thread. Of the parameters that
// come whole, peak memory is one of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/export.h"
#include "base/team.h"
#include "formats/checkpoint.h"
#include "nn/module.h"

namespace spyre::nn {

// Where weights go. All calls but accept_slice() come from the thread that loads.
class SPYRE_API WeightSink {
 public:
  virtual ~WeightSink() = default;
  // All parameters that will be loaded, buffers and aliases included, before the first accept().
  virtual void begin(const std::vector<const Parameter*>& parameters) = 0;
  // |weights| has the shape of |parameter.type| (perhaps with strides) and its dtype. Never called for an alias.
  virtual void accept(const Parameter& parameter, HostTensor weights) = 0;

  // How many rows of |parameter.loaded_shape| a slice of it has, at most; 0: it comes whole. Buffers always do.
  virtual int64_t slice_rows(const Parameter& /*parameter*/) const { return 0; }
  // Rows [first_row, first_row + n) as the layer has transformed them (of a transposed parameter they are columns), to
  // be copied before it returns. Called by any member of the team; the slices of a parameter do not overlap, and when
  // load_weights() returns all of it has come.
  virtual void accept_slice(const Parameter& parameter, int64_t first_row, const HostTensor& weights);
};

struct LoadTotals {
  int64_t bytes_done = 0, bytes_total = 0;
};

struct LoadOptions {
  ThreadTeam* team = nullptr;                         // reads slices; none: the calling thread does
  std::function<void(const LoadTotals&)> progress{};  // on the calling thread; what it throws ends the loading
};

// Throws Error naming the tensor: kNotFound when one is missing, kCorruptData when a shape differs, kUnsupported when
// the checkpoint has a tensor that the model does not use (it would change the maths), rotary tables and the head of a
// tied model excepted; all before the first tensor is read.
SPYRE_API void load_weights(const Module& model, const formats::Checkpoint& checkpoint, WeightSink& sink,
                            const LoadOptions& options = {});

}  // namespace spyre::nn
