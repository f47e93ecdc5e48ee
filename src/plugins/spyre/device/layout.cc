#include "plugins/spyre/device/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {

int64_t Layout::device_elements() const {
  return std::accumulate(device_size.begin(), device_size.end(), int64_t{1}, std::multiplies<>());
}

int64_t Layout::offset(std::span<const int64_t> coordinate) const {
  const int64_t e = stick_elements(dtype);
  int64_t offset = 0;
  bool stick_seen = false;
  for (size_t d = 0; d < device_size.size(); ++d) {
    const bool inside = d + 1 == device_size.size();
    int64_t c = 0;
    if (dim_map[d] >= 0) {
      c = coordinate[dim_map[d]];
      if (inside) {
        c %= e;
      } else if (dim_map[d] == stick_dim && !stick_seen) {
        c /= e;
        stick_seen = true;
      }
    }
    offset = offset * device_size[d] + c;
  }
  return offset;
}

std::string Layout::to_string() const {
  return fmt::format("[{}] stick={}", fmt::join(device_size, ","), sparse() ? "none" : std::to_string(stick_dim));
}

Layout default_layout(DType dtype, std::vector<int64_t> host_size, std::vector<int> dim_order) {
  const int rank = static_cast<int>(host_size.size());
  const int64_t e = stick_elements(dtype);
  if (dim_order.empty()) {
    dim_order.resize(rank);
    std::iota(dim_order.begin(), dim_order.end(), 0);
  }
  bool sparse = false;
  if (!dim_order.empty() && dim_order.back() == -1) {
    sparse = true;
    dim_order.pop_back();
  }
  std::vector<int> sorted = dim_order;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = static_cast<int>(sorted.size()) == rank;
  for (int i = 0; i < static_cast<int>(sorted.size()) && permutation; ++i) permutation = sorted[i] == i;
  if (!permutation) {
    throw_error(ErrorCode::kInvalidArgument, "dimension order [{}] is no permutation of {} dimensions",
                fmt::join(dim_order, ","), rank);
  }

  Layout layout{.dtype = dtype, .host_size = std::move(host_size)};
  std::vector<int64_t> host_strides(rank, 1);
  for (int i = rank - 2; i >= 0; --i) host_strides[i] = host_strides[i + 1] * layout.host_size[i + 1];
  if (rank == 0) {
    layout.device_size = {1, e};
    layout.stride_map = {-1, -1};
    layout.dim_map = {-1, -1};
    return layout;
  }

  // The order of device dimensions: all but the first of dim_order, then the first, then the inside of the stick.
  const int stick = sparse ? -1 : dim_order.back();
  std::vector<int> dims(dim_order.begin() + 1, dim_order.end());
  if (sparse) dims.push_back(-1);
  dims.push_back(dim_order.front());
  layout.stick_dim = stick;
  layout.dim_map = dims;
  layout.dim_map.push_back(stick);
  if (!sparse && rank == 1) layout.dim_map = {stick, stick};

  const size_t entries = layout.dim_map.size();
  layout.device_size.resize(entries);
  layout.stride_map.resize(entries);
  bool counted = false;
  for (size_t i = 0; i < entries; ++i) {
    const int dim = layout.dim_map[i];
    if (i + 1 == entries) {
      layout.device_size[i] = e;
    } else if (dim < 0) {
      layout.device_size[i] = 1;
    } else if (dim == stick && !counted) {
      layout.device_size[i] = (layout.host_size[dim] + e - 1) / e;
      counted = true;
    } else {
      layout.device_size[i] = layout.host_size[dim];
    }
  }
  // From the innermost entry outward: the first visit of a dimension moves by its host stride, the second by what one
  // full first visit has moved.
  std::vector<int64_t> moved(rank, 0);
  for (size_t i = entries; i-- > 0;) {
    const int dim = layout.dim_map[i];
    if (dim < 0 || layout.host_size[dim] == 1) {
      layout.stride_map[i] = -1;
    } else if (moved[dim] == 0) {
      layout.stride_map[i] = host_strides[dim];
      moved[dim] = host_strides[dim] * layout.device_size[i];
    } else {
      layout.stride_map[i] = moved[dim];
    }
  }
  return layout;
}

Layout restickified(const Layout& from, int stick_dim) {
  const int rank = static_cast<int>(from.host_size.size());
  SPYRE_CHECK(stick_dim >= 0 && stick_dim < rank, "stick dimension {} of rank {}", stick_dim, rank);
  if (from.sparse()) refuse(Rule::kRestickifySparse, fmt::format("the operand lies sparse in {}", from.to_string()));
  if (from.dtype == DType::kF32) {
    refuse(Rule::kRestickifyFp32,
           fmt::format("an fp32 tensor in {} would have to be re-laid to stick {}", from.to_string(), stick_dim));
  }
  // The two dimensions change places; every other one stays where it is.
  std::vector<int> order{from.dim_map[from.dim_map.size() - 2]};
  order.insert(order.end(), from.dim_map.begin(), from.dim_map.end() - 2);
  for (int& d : order) d = d == from.stick_dim ? stick_dim : d == stick_dim ? from.stick_dim : d;
  if (rank == 1) order = {stick_dim};
  return default_layout(from.dtype, from.host_size, order);
}

}  // namespace spyre::device
