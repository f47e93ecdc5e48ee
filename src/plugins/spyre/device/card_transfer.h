// Transfers of card stores: the host brings the elements into the card's extents and converts them (host_conversion.h),
// DMA nests move them (dma.h); the other way in the reverse order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/spyre/device/tensor.h"

namespace spyre::device {

// As write_store() and read_store() of transfer.h. Padding inside of an extent is written with poison; what lies behind
// the extents is not touched. Throws what the conversion throws.
void write_card(TensorStore& store, const std::byte* from, std::span<const int64_t> source_strides, int64_t rows);
// |converts|: as the host gets it, else the number that the card has (a DL16 beyond the host's type stays what it is).
void read_card(const TensorStore& store, float* to, int64_t rows, bool converts = true);

// Element |i| of dense elements in the host's format: what both kinds of store are read with.
float to_float(DType dtype, const std::byte* at, int64_t i);

// |words| elements that nobody has written: NaN in every float, -1 in every i32; the special code of DL16.
void poison_words(DType dtype, std::byte* at, size_t words);

}  // namespace spyre::device
