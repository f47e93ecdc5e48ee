#include "plugins/spyre/attention/kv_layout.h"

namespace spyre::attention {

device::TensorSpec slot_major_kv_spec(DType dtype, int64_t slots, const device::Axis& heads, const device::Axis& head) {
  const int64_t e = device::stick_elements(dtype), d = head.card();
  device::TensorSpec spec{.dtype = dtype, .axes = {device::Axis(slots), heads, head}};
  spec.layout = {.dtype = dtype,
                 .host_size = {slots, heads.card(), d},
                 .device_size = {slots, heads.card(), (d + e - 1) / e, e},
                 .stride_map = {heads.card() * d, d, e, 1},
                 .dim_map = {0, 1, 2, 2},
                 .stick_dim = 2};
  return spec;
}

}  // namespace spyre::attention
