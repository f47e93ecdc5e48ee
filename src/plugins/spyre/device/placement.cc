#include "plugins/spyre/device/placement.h"

#include "base/error.h"

namespace spyre::device {

Placement Placement::of(const Layout& layout) {
  SPYRE_CHECK(layout.stick_rank == 1, "packed sticks {}", layout.to_string());
  Placement p;
  p.stick_elements = spyre::device::stick_elements(layout.type);
  p.stick_dim = layout.stick_dim;
  p.arrangement = layout.arrangement;
  p.strides.assign(layout.host_size.size(), 0);
  // From the outside in, so that of the stick dimension the count of sticks is met first and wins.
  int64_t stride = layout.device_elements();
  std::vector<bool> seen(p.strides.size(), false);
  for (size_t i = 0; i + 1 < layout.device_size.size(); ++i) {
    stride /= layout.device_size[i];
    const int dim = layout.dim_map[i];
    if (dim < 0 || seen[dim]) continue;
    p.strides[dim] = stride;
    seen[dim] = true;
  }
  return p;
}

int64_t Placement::step(int dim, int64_t card) const {
  if (dim != stick_dim) return card * strides[dim];
  card = arranged(arrangement, card);
  return card / stick_elements * strides[dim] + card % stick_elements;
}

std::vector<int64_t> Placement::steps(int dim, const Axis& axis) const {
  std::vector<int64_t> out = axis.card_indices();
  for (int64_t& card : out) card = step(dim, card);
  return out;
}

Placement Placement::sliced(int dim, int64_t start) const {
  SPYRE_CHECK(dim != stick_dim || start % stick_unit() == 0, "a view from {} inside a stick", start);
  Placement p = *this;
  p.offset += step(dim, start);
  return p;
}

Placement Placement::transposed(const std::vector<int64_t>& perm) const {
  Placement p = *this;
  for (size_t i = 0; i < perm.size(); ++i) {
    p.strides[i] = strides[perm[i]];
    if (perm[i] == stick_dim) p.stick_dim = static_cast<int>(i);
  }
  return p;
}

Placement Placement::split(int dim, const std::vector<int64_t>& outer, int64_t inner) const {
  const bool stick = dim == stick_dim;
  SPYRE_CHECK(!stick || inner % stick_unit() == 0, "units of {} across sticks", inner);
  Placement p = *this;
  int64_t stride = strides[dim] * (stick ? inner / stick_elements : inner);
  std::vector<int64_t> made(outer.size());
  for (size_t i = outer.size(); i-- > 0; stride *= outer[i]) made[i] = stride;
  p.strides.insert(p.strides.begin() + dim, made.begin(), made.end());
  const auto count = static_cast<int>(outer.size());
  if (stick_dim >= dim) p.stick_dim += count;
  return p;
}

std::optional<Placement> Placement::merged(int first, const std::vector<int64_t>& outer, int64_t inner) const {
  const auto count = static_cast<int>(outer.size());
  const int last = first + count;
  if (stick_dim >= first && stick_dim < last) return std::nullopt;
  const bool stick = last == stick_dim;
  if (stick && inner % stick_unit() != 0) return std::nullopt;
  int64_t expected = strides[last] * (stick ? inner / stick_elements : inner);
  for (int d = last - 1; d >= first; --d) {
    if (strides[d] != expected) return std::nullopt;
    expected *= outer[d - first];
  }
  Placement p = *this;
  p.strides.erase(p.strides.begin() + first, p.strides.begin() + last);
  if (stick_dim >= last) p.stick_dim -= count;
  return p;
}

Placement Placement::dropped(int dim) const {
  Placement p = *this;
  p.strides.erase(p.strides.begin() + dim);
  if (stick_dim == dim) {
    p.stick_dim = -1;
  } else if (stick_dim > dim) {
    --p.stick_dim;
  }
  return p;
}

Placement Placement::inserted(int dim) const {
  Placement p = *this;
  p.strides.insert(p.strides.begin() + dim, 0);
  if (stick_dim >= dim) ++p.stick_dim;
  return p;
}

}  // namespace spyre::device
