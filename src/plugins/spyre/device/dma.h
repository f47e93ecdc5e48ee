// Transfers between the host and the card's memory as DMA nests: rectangular loops with a stride on either side.
// Source: torch-spyre's copies (H): per tensor one nest and a second one for the partial stick; here in general, as a
// layout may be packed or staggered and then needs more. Data conversion is not part of a nest: it comes before the
// copy in, and after the copy out (host_conversion.h).
//
// Plain values and pure functions. Units: elements of the card type; of a 4-bit type two lie in a byte, the first in
// the low half (INF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/spyre/device/layout.h"

namespace spyre::device {

struct DmaNest {
  std::vector<int64_t> sizes, host_strides, device_strides;  // outermost loop first; none: one element
  int64_t host_offset = 0, device_offset = 0;

  int64_t elements() const;
  std::string to_string() const;  // "4x1024x64 host 64,256,1 device 65536,64,1 at 0,0"
  bool operator==(const DmaNest&) const = default;
};

struct DmaPlan {
  int bits = 16;  // of an element
  std::vector<DmaNest> nests;

  int64_t elements() const;
  // Runs of consecutive device bytes that the nests move: what a transfer is paid for by, as short runs are slow.
  int64_t bursts() const;
};

// Moves every element whose coordinates are within |extents| (at most layout.host_size; empty = all of it). The host
// tensor has |host_strides| (empty = row-major over host_size). Padding is not touched.
DmaPlan plan_dma(const Layout& layout, std::span<const int64_t> extents = {},
                 std::span<const int64_t> host_strides = {});

void run_to_device(const DmaPlan& plan, const std::byte* host, std::byte* device);
void run_to_host(const DmaPlan& plan, const std::byte* device, std::byte* host);

}  // namespace spyre::device
