// Moving elements between host order and the two stores of a device tensor. Used by SoftwareDevice only, which counts.
#pragma once

#include <cstdint>
#include <span>

#include "plugins/spyre/device/tensor.h"

namespace spyre::device {

// |from| is row-major logical (|source_strides| empty) or strided. Only the first |rows| of dimension 0 are written.
void write_store(TensorStore& store, const std::byte* from, std::span<const int64_t> source_strides, int64_t rows);
// A slice of dimension |dim|, beginning at |first|: |from| with |shape| and strides as above. Slices that do not
// overlap may be written by several threads at once. REQUIRES: a host store; panels, or dim == 0 of a row-major store
// and |from| row-major.
void write_slice(TensorStore& store, const std::byte* from, std::span<const int64_t> shape,
                 std::span<const int64_t> source_strides, int dim, int64_t first);
// Row-major logical elements, converted to fp32.
void read_store(const TensorStore& store, float* to, int64_t rows);

// Card bytes of the first |rows| of dimension 0: what a DMA of them moves, in whole sticks.
int64_t transfer_card_bytes(const TensorSpec& spec, int64_t rows);

// Fills a card store with what nobody has written: NaN in every float word, -1 in every i32.
void poison(TensorStore& store);

}  // namespace spyre::device
