// Weight storage: stick panels.
//
// A [K, N] weight (y = x W) is ceil(N / 64) panels of 64 columns, one behind the other, so that a thread that computes
// a range of columns reads one stream. Inside a panel:
//   sequential (f16)   [K][64]
//   pair (bf16)        [ceil(K / 2)][64][2]             the pair of one column side by side, as vdpbf16ps takes it
//   tile (bf16)        the same, K padded to a multiple of 32: sixteen pairs are the rows of an AMX tile
// Everything past K or N is zero.
//
// Packing is thread-safe for disjoint column ranges.
#pragma once

#include <cstdint>

#include "base/dot_orders.h"

namespace spyre::kernels {

constexpr int64_t kPanelColumns = 64;

struct PanelLayout {
  DotOrder order = DotOrder::kSequential;
  int64_t k = 0;
  int64_t n = 0;

  int64_t panels() const;          // ceil(n / 64)
  int64_t padded_k() const;        // k as stored
  int64_t panel_elements() const;  // padded_k * 64
  int64_t elements() const;        // of the whole weight
  int64_t bytes() const;
  int64_t index(int64_t row, int64_t column) const;  // where element (k = row, n = column) lies
};

enum class SourceOrder : uint8_t {
  kInOut,  // row-major [K, columns]: source[k * ld + n]
  kOutIn,  // row-major [columns, K]: source[n * ld + k], as checkpoints store a linear layer
};

// Writes columns [first_column, first_column + columns) of the weight from `source`, whose own columns count from 0 (so
// that the parts of a fused weight are packed one by one). The K padding of these columns is zeroed, and the padding
// columns of the last panel when the range ends at n: calls that cover all of n initialise every element.
void pack_panels(const PanelLayout& layout, SourceOrder source_order, const uint16_t* source, int64_t ld,
                 int64_t first_column, int64_t columns, uint16_t* panels);

// A part of one panel: rows [k, k + k_count) of lanes [lane, lane + lanes).
struct PanelBlock {
  int64_t k = 0, k_count = 0;
  int64_t lane = 0, lanes = 0;
};

// Writes one block from `source`, which points at its first element and counts from there; no other word is touched
// (of a pair, only the half inside the block). REQUIRES: of kOutIn, block.k even.
void write_panel(DotOrder order, SourceOrder source_order, const uint16_t* source, int64_t ld, const PanelBlock& block,
                 uint16_t* panel);

// The reverse, to row-major [k, columns] with leading dimension ld.
void unpack_panels(const PanelLayout& layout, const uint16_t* panels, int64_t first_column, int64_t columns,
                   uint16_t* out, int64_t ld);

}  // namespace spyre::kernels
