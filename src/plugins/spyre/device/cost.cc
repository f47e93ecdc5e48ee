#include "plugins/spyre/device/cost.h"

#include <algorithm>
#include <cmath>

namespace spyre::device {

const CostConfig& measured_costs() {
  static const CostConfig config = {
      .name = "measured",
      .macs_per_ns_core = {1140, "MAC/ns/core", "M", "torch-spyre cost model, sustained matmul; its RMS error 25-30 %"},
      .rows_half_rate = {64, "rows", "M", "torch-spyre cost model: min(1, (rows_per_core / 64)^0.35)"},
      .rows_exponent = {0.35, "", "M", "torch-spyre cost model"},
      .memory_gb_s = {150, "GB/s", "M", "torch-spyre cost model, one way"},
      .mixing_ns_byte = {0.00574, "ns/B", "M", "torch-spyre cost model: about 105 GB/s for balanced read and write"},
      .restickify_gb_s = {116, "GB/s", "M", "torch-spyre cost model"},
      .pointwise_ns_core = {1.76, "elements/ns/core", "L", "a public fork's note: 1760 elements/us/core"},
      .launch_ns = {0, "ns", "L", "torch-spyre: fixed on-device cost about 0; older notes say 2.9 ms per call"},
  };
  return config;
}

const CostConfig& spec_costs() {
  static const CostConfig config = {
      .name = "spec",
      .macs_per_ns_core = {1536, "MAC/ns/core", "INF", "98.3 TFLOP/s over 32 cores: 2 corelets x 512 MAC x 1.5 GHz"},
      .rows_half_rate = {64, "rows", "INF", "not used by the peak"},
      .rows_exponent = {0, "", "INF", "the peak does not depend on the shape"},
      .memory_gb_s = {204.8, "GB/s", "H", "LPDDR5 peak, the constant of work division"},
      .mixing_ns_byte = {0, "ns/B", "INF", "peak"},
      .restickify_gb_s = {204.8, "GB/s", "INF", "memory peak"},
      .pointwise_ns_core = {96, "elements/ns/core", "UNK", "64 lanes at 1.5 GHz; no rate per function is public"},
      .launch_ns = {0, "ns", "INF", "peak"},
  };
  return config;
}

double estimate_ns(const CostConfig& config, const OpWork& work) {
  const auto read = static_cast<double>(work.read_bytes), written = static_cast<double>(work.write_bytes);
  if (work.restickify) return (read + written) / config.restickify_gb_s.value;
  const auto cores = static_cast<double>(std::max<int64_t>(work.cores, 1));
  const double rows = static_cast<double>(work.rows_per_core) / config.rows_half_rate.value;
  const double efficiency = std::min(1.0, std::pow(std::max(rows, 1e-9), config.rows_exponent.value));
  double rate = config.macs_per_ns_core.value * efficiency;
  if (work.split_reduction) rate /= 2;
  const double compute = static_cast<double>(work.macs) / cores / rate +
                         static_cast<double>(work.elements) / cores / config.pointwise_ns_core.value;
  const double memory =
      (read + written) / config.memory_gb_s.value + config.mixing_ns_byte.value * std::min(read, written);
  return std::max(compute, memory);
}

// torch-spyre's planner (M): 1536 MAC/ns/core, exponent 0.25, a split reduction doubles the compute; a part that more
// than 8 cores read costs (fanout / 8)^0.75; each further partial sum costs 1e-3 us per element of a core.
double planner_ns(const MatmulDivision& d) {
  const double efficiency = std::min(1.0, std::pow(static_cast<double>(d.rows_per_core) / 64, 0.25));
  const double compute = static_cast<double>(d.macs) / static_cast<double>(d.cores) / (1536 * efficiency) *
                         (d.reduction_splits > 1 ? 2 : 1);
  auto traffic = [](int64_t bytes, int64_t fanout) {
    return static_cast<double>(bytes) / 204.8 * std::max(1.0, std::pow(static_cast<double>(fanout) / 8, 0.75));
  };
  const double memory = traffic(d.x_bytes, d.x_fanout) + traffic(d.w_bytes, d.w_fanout) + traffic(d.out_bytes, 1);
  const double partial = static_cast<double>(d.reduction_splits - 1) * static_cast<double>(d.out_elements) *
                         static_cast<double>(d.reduction_splits) / static_cast<double>(d.cores) * 1e-3 * 1000;
  return std::max(compute, memory) + partial;
}

OpWork attention_work(int64_t query, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t keys,
                      int64_t element_bytes) {
  OpWork work;
  work.macs = 2 * query * heads * keys * head_size;  // Q K^T and P V
  work.elements = 4 * query * heads * keys;          // scale, maximum, exponential, sum
  work.read_bytes = (query * heads + 2 * keys * kv_heads) * head_size * element_bytes;
  work.write_bytes = query * heads * head_size * element_bytes;
  work.cores = std::min<int64_t>(32, kv_heads);
  work.rows_per_core = query * heads / std::max<int64_t>(kv_heads, 1);
  return work;
}

// Lanes and KV heads are one batch dimension, which is what the cores divide; each core has the rows of one group.
OpWork batched_attention_work(int64_t lanes, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t keys,
                              int64_t element_bytes) {
  OpWork work = attention_work(1, heads, kv_heads, head_size, keys, element_bytes);
  work.macs *= lanes;
  work.elements *= lanes;
  work.read_bytes *= lanes;
  work.write_bytes *= lanes;
  work.cores = std::min<int64_t>(32, lanes * kv_heads);
  return work;
}

}  // namespace spyre::device
