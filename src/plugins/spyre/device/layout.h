// How a tensor lies in the card's memory: in sticks of 128 bytes. Source of the rules: torch-spyre's layout algorithm
// (default_layout, sparse and custom dimension orders; H), its casts (staggered; M), and the stick tables of the
// interface specifications (packed; M).
//
// Device memory is dense and row-major over device_size. The last stick_rank device dimensions are the inside of a
// stick and have E = 1024 / bits elements together; one, but for packed weights of 8 and 4 bits. stride_map[i] is what
// one step in device dimension i moves in the row-major host tensor: -1 for a dimension that the host does not have
// (synthetic, or of size 1). The stick dimension appears twice: once counting sticks, once inside the stick. Device
// coordinates past the host size are padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "plugins/spyre/device/arrangement.h"
#include "plugins/spyre/device/card_types.h"

namespace spyre::device {

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct Layout {
  CardType type = CardType::kDl16;
  std::vector<int64_t> host_size;
  std::vector<int64_t> device_size;
  std::vector<int64_t> stride_map;
  std::vector<int> dim_map;  // host dimension of each device dimension; -1 = synthetic
  int stick_dim = -1;        // host dimension in the stick; -1 = sparse (one valid element per stick) or scalar
  int stick_rank = 1;        // trailing device dimensions inside the stick
  Arrangement arrangement = Arrangement::kStandard;

  bool sparse() const { return stick_dim < 0; }
  int64_t device_elements() const;
  int64_t sticks() const { return device_elements() / stick_elements(type); }
  int64_t bytes() const { return sticks() * kStickBytes; }
  // Offset in elements of a host coordinate.
  int64_t offset(std::span<const int64_t> coordinate) const;
  std::string to_string() const;  // "[4,512,64] stick=1"

  bool operator==(const Layout&) const = default;
};

// |dim_order| is a permutation of 0 .. rank-1 whose last entry is the stick dimension, or of 0 .. rank-1 followed by -1
// for a sparse layout; empty = 0 .. rank-1. Any rank. Throws Error(kInvalidArgument) for anything else.
Layout default_layout(CardType type, std::vector<int64_t> host_size, std::vector<int> dim_order = {});
Layout default_layout(DType dtype, std::vector<int64_t> host_size, std::vector<int> dim_order = {});

// The result of exx2 over rows of any kind: |rows| are the extents that remain, the two values (the mean and the mean
// of squares) the last dimension, which is 2.
Layout exx2_layout(CardType type, std::vector<int64_t> rows);

// One factor of a packed stick: |extent| consecutive elements of host dimension |dim|.
struct StickPart {
  int dim = 0;
  int64_t extent = 1;
  bool operator==(const StickPart&) const = default;
};

// A layout whose stick is a small tile: |parts|, outermost first, have E elements together; a dimension may occur more
// than once, its outer parts counting blocks of the inner ones. Blocks of the other elements lie outside in the order
// of default_layout. The stick dimension is that of the last part. Throws Error(kInvalidArgument) when the parts do not
// fill a stick.
Layout packed_layout(CardType type, std::vector<int64_t> host_size, const std::vector<StickPart>& parts);

// The layout change that moves the stick of |from| to host dimension |stick_dim|; an E x E tile transpose in memory
// (restickify.h). Throws Error(kRuleViolation) for what the card cannot do (from a sparse stick, fp32, a layout that is
// not the standard one).
Layout restickified(const Layout& from, int stick_dim);

// What a cast makes of a tensor: an fp32 tensor from DL16 and the other way. The result of a cast of a standard layout
// is staggered; the inverse cast of a staggered one is standard again. Throws Error(kRuleViolation) (L-29) for partial
// sticks.
Layout cast_layout(const Layout& from, CardType to);

// One loop of a walk over device memory, outermost first: |extent| steps that move |step| elements along host dimension
// |dim| (-1: none). The loops of a layout are dense: a loop moves in memory by the product of the extents behind it.
struct WalkLoop {
  int dim = -1;
  int64_t step = 1;
  int64_t extent = 1;
  bool operator==(const WalkLoop&) const = default;
};

// The layout as one loop nest, arrangement and packing resolved: what a transfer follows.
std::vector<WalkLoop> walk(const Layout& layout);

}  // namespace spyre::device
