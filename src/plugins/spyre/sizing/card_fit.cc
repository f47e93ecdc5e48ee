#include "plugins/spyre/sizing/card_fit.h"

#include <algorithm>
#include <array>

#include "plugins/spyre/device/layout.h"
#include "plugins/spyre/device/memory.h"

namespace spyre::sizing {
namespace {

// First fit of every tensor over the data segments; one that is larger than a segment takes whole ones. The bytes that
// found no place are left over.
struct Packing {
  std::array<int64_t, kDataSegments> used{};
  int64_t left_over = 0;

  void add(int64_t bytes) {
    bytes = std::max(device::round_up(bytes, device::kStickBytes), device::kStickBytes);
    if (bytes > device::kSegmentBytes) return add_large(bytes);
    for (int64_t& segment : used) {
      if (segment + bytes > device::kSegmentBytes) continue;
      segment += bytes;
      return;
    }
    left_over += bytes;
  }

 private:
  void add_large(int64_t bytes) {
    const int64_t needed = (bytes + device::kSegmentBytes - 1) / device::kSegmentBytes;
    for (int64_t first = 0; first + needed <= kDataSegments; ++first) {
      const auto begin = used.begin() + first, end = begin + needed;
      if (std::any_of(begin, end, [](int64_t segment) { return segment != 0; })) continue;
      for (auto segment = begin; segment != end; ++segment) {
        *segment = std::min(bytes, device::kSegmentBytes);
        bytes -= *segment;
      }
      return;
    }
    left_over += bytes;
  }
};

CardLimit limit(std::string_view name, std::string_view unit, int64_t used, int64_t most, std::string_view confidence,
                std::string_view why) {
  return {name, unit, used, most, used <= most, confidence, why};
}

}  // namespace

int64_t KvDemand::blocks() const {
  return sequences == 0 ? 0 : sequences * ((length + block_size - 1) / block_size) + 1;
}

bool CardFit::fits() const {
  return std::all_of(limits.begin(), limits.end(), [](const CardLimit& l) { return l.met; });
}

CardFit fit_card(const ModelShape& shape, const CardShare& share, const KvDemand& kv, int64_t pool_bytes) {
  CardFit fit;
  fit.kv_blocks = kv.blocks();
  const int64_t layer_k = fit.kv_blocks * kv.block_size * share.layer_k_bytes_per_token();
  fit.kv_bytes = 2 * shape.layers * layer_k;
  fit.weight_bytes = share.weight_bytes();
  fit.pool_bytes = pool_bytes;

  Packing packing;
  for (const CardTensor& tensor : share.tensors) {
    for (int64_t i = 0; i < tensor.count; ++i) packing.add(tensor.bytes);
  }
  if (fit.kv_blocks > 0) {
    for (int64_t i = 0; i < 2 * shape.layers; ++i) packing.add(layer_k);
  }
  for (int64_t i = 0; i < kDataSegments; ++i) fit.segments.push_back({"weights and KV cache", packing.used[i]});
  fit.segments.push_back({"pooled intermediates", pool_bytes});
  fit.segments.push_back({"programs", 0});

  const int64_t total = fit.weight_bytes + fit.kv_bytes + pool_bytes;
  fit.limits = {
      limit("card memory", "bytes", total, device::kDeviceMemoryBytes, "H", "128 GB of LPDDR5, about 112 without ECC"),
      limit("data segments", "bytes", total - pool_bytes, kDataSegments * device::kSegmentBytes, "M",
            "8 segments of 16 GiB, less one for programs and one for pooled intermediates; a tensor that fits a "
            "segment crosses no boundary"),
      limit("pool segment", "bytes", pool_bytes, kPoolBytes, "M", "14 GiB of a segment are used for intermediates"),
      limit("DMA mappings", "tensors", share.tensor_count() + 2 * shape.layers, kDmaMappings, "M",
            "65,535 a process; that a tensor is one mapping is assumed (INF)"),
      limit("gather span", "bytes", layer_k, kGatherBytes - 1, "M",
            "one layer's K stays below about 1 GB: a core may touch 256 MiB of a tensor"),
  };
  // Tensors may find no place although their sum would.
  if (packing.left_over > 0) fit.limits[1].met = false;
  return fit;
}

}  // namespace spyre::sizing
