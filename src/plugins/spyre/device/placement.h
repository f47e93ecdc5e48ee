// Placement: where the elements of a buffer are, as an affine map from card coordinates. A buffer of its own has the
// placement of its layout; a view (slice, transpose, regrouping of whole sticks) is derived from its base's, as the
// card addresses a view: offset and strides, never a copy.
//
// Plain value. Units: elements of |dtype|.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/spyre/device/axis.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::device {

struct Placement {
  int64_t stick_elements = 64;
  int stick_dim = -1;            // -1: one element per stick
  int64_t offset = 0;            // a multiple of the stick
  std::vector<int64_t> strides;  // per dimension; of the stick dimension: from stick to stick
  Arrangement arrangement = Arrangement::kStandard;

  // REQUIRES: a layout whose sticks are not packed.
  static Placement of(const Layout& layout);

  int rank() const { return static_cast<int>(strides.size()); }
  // What coordinate |card| of dimension |dim| adds.
  int64_t step(int dim, int64_t card) const;
  // The same for every logical index of |axis|.
  std::vector<int64_t> steps(int dim, const Axis& axis) const;

  // Elements of the stick dimension that a view may not cut: a stick, or the 64 that are staggered together.
  int64_t stick_unit() const { return is_staggered(arrangement) ? kStaggerColumns : stick_elements; }

  // From card element |start| of |dim| on. REQUIRES: whole units.
  Placement sliced(int dim, int64_t start) const;
  Placement transposed(const std::vector<int64_t>& perm) const;
  // |dim| becomes outer dimensions of the given extents and an inner one of card extent |inner|.
  Placement split(int dim, const std::vector<int64_t>& outer, int64_t inner) const;
  // The dimensions first .. first + outer.size(), outermost first, the last of card extent |inner|, become one; none
  // when they do not lie regularly.
  std::optional<Placement> merged(int first, const std::vector<int64_t>& outer, int64_t inner) const;
  // Without dimension |dim| / with a new one before |dim|, of extent 1.
  Placement dropped(int dim) const;
  Placement inserted(int dim) const;

  bool operator==(const Placement&) const = default;
};

}  // namespace spyre::device
