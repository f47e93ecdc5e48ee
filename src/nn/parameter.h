// A parameter of a layer: what the graph sees of it, and where its values come from.
//
// Owned by its Module for the life of the model; the address is its identity (a Trace binds graph parameters to it). It
// holds no weights: the loader reads them from the checkpoint, lets the layer transform them, and hands them to a
// WeightSink. Buffers (a rotary cache) carry their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/export.h"
#include "graph/type.h"

namespace spyre::nn {

// A dense host tensor of raw elements, row-major unless strides say otherwise. Move-only in spirit: weights are large.
struct SPYRE_API HostTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; empty = row-major contiguous
  std::shared_ptr<std::byte[]> data;

  static HostTensor allocate(DType dtype, std::vector<int64_t> shape);
  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  bool contiguous() const { return strides.empty(); }
  HostTensor transposed() const;  // REQUIRES: rank 2. Shares the elements.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data.get());
  }
};

// Rows [row, row + rows) of the loaded tensor come from the checkpoint tensor |name|, whole.
struct WeightSource {
  std::string name;
  int64_t row = 0, rows = 0;
};

struct Parameter {
  std::string name;                   // full path: model.layers.0.self_attn.qkv_proj.weight
  graph::Type type;                   // as the graph sees it, after process_weights_after_loading
  std::vector<int64_t> loaded_shape;  // as the checkpoint has it: [out, in] or [out]
  bool transposed = false;            // |type| is the transpose of loaded_shape (a square shape does not tell)
  std::vector<WeightSource> sources;  // empty for a buffer or an alias
  const Parameter* alias = nullptr;   // has the same values as this one (tied embeddings)
  HostTensor buffer;                  // values of a buffer
};

}  // namespace spyre::nn
