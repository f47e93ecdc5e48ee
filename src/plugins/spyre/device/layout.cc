#include "plugins/spyre/device/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

std::vector<int64_t> row_major(const std::vector<int64_t>& size) {
  std::vector<int64_t> strides(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) strides[i - 1] = strides[i] * size[i];
  return strides;
}

bool is_permutation(const std::vector<int>& order, size_t rank) {
  if (order.size() != rank) return false;
  for (int d = 0; d < static_cast<int>(rank); ++d) {
    if (std::find(order.begin(), order.end(), d) == order.end()) return false;
  }
  return true;
}

// What one step of each device dimension moves in the host tensor, from the innermost dimension outward: the first
// visit of a host dimension by its own stride, the next by what a full first visit has moved, but not past its end.
void fill_stride_map(Layout& layout) {
  const std::vector<int64_t> host_strides = row_major(layout.host_size);
  std::vector<int64_t> moved(layout.host_size.size(), 0);
  layout.stride_map.assign(layout.dim_map.size(), -1);
  for (size_t i = layout.dim_map.size(); i-- > 0;) {
    const int dim = layout.dim_map[i];
    if (dim < 0 || layout.host_size[dim] == 1) continue;
    const int64_t stride = moved[dim] == 0 ? host_strides[dim] : moved[dim];
    layout.stride_map[i] = stride;
    moved[dim] = std::min(stride * layout.device_size[i], host_strides[dim] * layout.host_size[dim]);
  }
}

}  // namespace

int64_t Layout::device_elements() const {
  return std::accumulate(device_size.begin(), device_size.end(), int64_t{1}, std::multiplies<>());
}

int64_t Layout::offset(std::span<const int64_t> coordinate) const {
  // Each host dimension is a number whose digits are its device dimensions.
  std::vector<int64_t> rest(coordinate.begin(), coordinate.end());
  if (stick_dim >= 0) rest[stick_dim] = arranged(arrangement, rest[stick_dim]);
  int64_t offset = 0, stride = 1;
  for (size_t i = device_size.size(); i-- > 0; stride *= device_size[i]) {
    if (dim_map[i] < 0) continue;
    int64_t& digits = rest[dim_map[i]];
    offset += digits % device_size[i] * stride;
    digits /= device_size[i];
  }
  return offset;
}

std::string Layout::to_string() const {
  std::string text =
      fmt::format("[{}] stick={}", fmt::join(device_size, ","), sparse() ? "none" : std::to_string(stick_dim));
  if (arrangement != Arrangement::kStandard) text += fmt::format(" {}", device::to_string(arrangement));
  return text;
}

Layout default_layout(DType dtype, std::vector<int64_t> host_size, std::vector<int> dim_order) {
  return default_layout(card_type_of(dtype), std::move(host_size), std::move(dim_order));
}

Layout default_layout(CardType type, std::vector<int64_t> host_size, std::vector<int> dim_order) {
  const size_t rank = host_size.size();
  const int64_t e = stick_elements(type);
  if (dim_order.empty()) {
    dim_order.resize(rank);
    std::iota(dim_order.begin(), dim_order.end(), 0);
  }
  const bool sparse = rank > 0 && dim_order.back() == -1;
  if (sparse) dim_order.pop_back();
  if (!is_permutation(dim_order, rank)) {
    throw_error(ErrorCode::kInvalidArgument, "dimension order [{}] is no permutation of {} dimensions",
                fmt::join(dim_order, ","), rank);
  }

  Layout layout{.type = type, .host_size = std::move(host_size)};
  if (rank == 0) {
    layout.device_size = {1, e};
    layout.stride_map = {-1, -1};
    layout.dim_map = {-1, -1};
    return layout;
  }
  // The order of device dimensions: all but the first of dim_order, then the first, then the inside of the stick.
  const int stick = sparse ? -1 : dim_order.back();
  layout.stick_dim = stick;
  layout.dim_map.reserve(rank + 2);
  layout.device_size.reserve(rank + 2);
  layout.dim_map.assign(dim_order.begin() + 1, dim_order.end());
  if (sparse) layout.dim_map.push_back(-1);
  layout.dim_map.push_back(dim_order.front());
  layout.dim_map.push_back(stick);

  bool counted = false;
  for (size_t i = 0; i + 1 < layout.dim_map.size(); ++i) {
    const int dim = layout.dim_map[i];
    const bool counts = dim == stick && !counted;
    if (dim < 0) {
      layout.device_size.push_back(1);
    } else {
      layout.device_size.push_back(counts ? (layout.host_size[dim] + e - 1) / e : layout.host_size[dim]);
    }
    counted = counted || counts;
  }
  layout.device_size.push_back(e);
  fill_stride_map(layout);
  return layout;
}

Layout exx2_layout(CardType type, std::vector<int64_t> rows) {
  rows.push_back(2);
  Layout layout = default_layout(type, std::move(rows));
  layout.arrangement = Arrangement::kExx2;
  return layout;
}

Layout packed_layout(CardType type, std::vector<int64_t> host_size, const std::vector<StickPart>& parts) {
  int64_t elements = 1;
  std::vector<int64_t> block(host_size.size(), 1);
  for (const StickPart& part : parts) {
    const bool known = part.dim >= 0 && part.dim < static_cast<int>(host_size.size()) && part.extent > 0;
    elements = known ? elements * part.extent : 0;
    if (known) block[part.dim] *= part.extent;
  }
  if (parts.empty() || elements != stick_elements(type)) {
    throw_error(ErrorCode::kInvalidArgument, "a stick of {} parts holds {} elements, not {} of {}", parts.size(),
                elements, stick_elements(type), info(type).name);
  }
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(host_size.size()); ++d) {
    if (d != parts.back().dim) order.push_back(d);
  }
  order.push_back(parts.back().dim);
  Layout layout = default_layout(type, std::move(host_size), order);
  layout.dim_map.pop_back();
  layout.device_size.clear();
  for (const int dim : layout.dim_map)
    layout.device_size.push_back((layout.host_size[dim] + block[dim] - 1) / block[dim]);
  for (const StickPart& part : parts) {
    layout.dim_map.push_back(part.dim);
    layout.device_size.push_back(part.extent);
  }
  layout.stick_rank = static_cast<int>(parts.size());
  fill_stride_map(layout);
  return layout;
}

Layout restickified(const Layout& from, int stick_dim) {
  const int rank = static_cast<int>(from.host_size.size());
  SPYRE_CHECK(stick_dim >= 0 && stick_dim < rank, "stick dimension {} of rank {}", stick_dim, rank);
  if (from.sparse()) refuse(Rule::kRestickifySparse, fmt::format("the operand lies sparse in {}", from.to_string()));
  if (from.type == CardType::kFp32) {
    refuse(Rule::kRestickifyFp32,
           fmt::format("an fp32 tensor in {} would have to be re-laid to stick {}", from.to_string(), stick_dim));
  }
  if (is_staggered(from.arrangement)) {
    refuse(Rule::kStaggeredOp, fmt::format("restickify of a tensor in {}", from.to_string()));
  }
  if (from.arrangement == Arrangement::kExx2) {
    refuse(Rule::kExx2, fmt::format("restickify of a tensor in {}", from.to_string()));
  }
  SPYRE_CHECK(from.stick_rank == 1, "restickify of packed sticks {}", from.to_string());
  // The two dimensions change places; every other one stays where it is.
  std::vector<int> order{from.dim_map[from.dim_map.size() - 2]};
  order.insert(order.end(), from.dim_map.begin(), from.dim_map.end() - 2);
  for (int& d : order) d = d == from.stick_dim ? stick_dim : d == stick_dim ? from.stick_dim : d;
  if (rank == 1) order = {stick_dim};
  return default_layout(from.type, from.host_size, order);
}

Layout cast_layout(const Layout& from, CardType to) {
  const bool widens = from.type == CardType::kDl16 && to == CardType::kFp32;
  SPYRE_CHECK(widens || (from.type == CardType::kFp32 && to == CardType::kDl16), "a cast from {} to {}",
              info(from.type).name, info(to).name);
  const bool has_sticks = !from.sparse() && from.arrangement != Arrangement::kExx2;
  const int64_t columns = has_sticks ? from.host_size[from.stick_dim] : 1;
  if (columns % kStaggerColumns != 0) {
    refuse(Rule::kStaggeredCast, fmt::format("a cast of {} columns in {}", columns, from.to_string()));
    return from;
  }
  const Arrangement made = widens ? Arrangement::kDl16ToFp32 : Arrangement::kFp32ToDl16;
  const Arrangement undone = widens ? Arrangement::kFp32ToDl16 : Arrangement::kDl16ToFp32;
  SPYRE_CHECK(from.arrangement == Arrangement::kStandard || from.arrangement == undone, "a cast of {}",
              from.to_string());
  Layout layout = from;
  layout.type = to;
  // The slot that counts sticks is the first of the stick dimension.
  const auto slot = std::find(from.dim_map.begin(), from.dim_map.end(), from.stick_dim) - from.dim_map.begin();
  layout.device_size[static_cast<size_t>(slot)] = columns / stick_elements(to);
  layout.device_size.back() = stick_elements(to);
  layout.arrangement = from.arrangement == undone ? Arrangement::kStandard : made;
  fill_stride_map(layout);
  return layout;
}

std::vector<WalkLoop> walk(const Layout& layout) {
  std::vector<WalkLoop> loops(layout.dim_map.size());
  std::vector<int64_t> step(layout.host_size.size(), 1);
  for (size_t i = loops.size(); i-- > 0;) {
    const int dim = layout.dim_map[i];
    loops[i] = {dim, dim < 0 ? 1 : step[dim], layout.device_size[i]};
    if (dim >= 0) step[dim] *= layout.device_size[i];
  }
  if (!is_staggered(layout.arrangement)) return loops;
  const int dim = layout.stick_dim;
  const auto slot = std::find(layout.dim_map.begin(), layout.dim_map.end(), dim) - layout.dim_map.begin();
  std::vector<WalkLoop> split(loops.begin(), loops.begin() + slot);
  if (layout.arrangement == Arrangement::kDl16ToFp32) {
    split.push_back({dim, 64, loops[slot].extent / 2});
    split.push_back({dim, 4, 2});
    split.insert(split.end(), loops.begin() + slot + 1, loops.end() - 1);
    split.push_back({dim, 8, 8});
  } else {
    split.push_back({dim, 64, loops[slot].extent});
    split.insert(split.end(), loops.begin() + slot + 1, loops.end() - 1);
    split.push_back({dim, 4, 8});
    split.push_back({dim, 32, 2});
  }
  split.push_back({dim, 1, 4});
  return split;
}

}  // namespace spyre::device
