#include "plugins/spyre/device/entry_layout.h"

#include <utility>

#include "base/error.h"

namespace spyre::device {

Layout entry_layout(DType dtype, std::vector<int64_t> host_size) {
  const auto rank = static_cast<int>(host_size.size());
  SPYRE_CHECK(rank >= 2, "entries of a tensor of rank {}", rank);
  const int64_t e = stick_elements(dtype), columns = host_size.back();
  Layout layout{.type = card_type_of(dtype), .stick_dim = rank - 1};
  layout.device_size = host_size;
  layout.device_size.back() = (columns + e - 1) / e;
  layout.device_size.push_back(e);
  layout.stride_map.assign(static_cast<size_t>(rank) + 1, 1);
  int64_t stride = columns;
  for (int d = rank - 1; d-- > 0; stride *= host_size[d]) layout.stride_map[d] = stride;
  layout.stride_map[rank - 1] = e;
  for (int d = 0; d < rank; ++d) layout.dim_map.push_back(d);
  layout.dim_map.push_back(rank - 1);
  layout.host_size = std::move(host_size);
  return layout;
}

}  // namespace spyre::device
