#include "plugins/spyre/device/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace spyre::device {
namespace {

constexpr int64_t kBatchOfSlowProducts = 4, kCoresOfSlowProducts = 8, kFewProjections = 4;
constexpr int64_t kCardsBelowOneSwitch = 4;
constexpr int64_t kCores = 32, kFullRateRows = 64;

double matmul_rate(const CostConfig& c, const OpWork& w) {
  const int64_t cores = std::max<int64_t>(w.cores, 1);
  double rate = c.macs_per_ns_core.value;
  if (w.form == MatmulForm::kBatchDefaultOrder && w.batch >= kBatchOfSlowProducts && cores >= kCoresOfSlowProducts) {
    rate = c.bmm_default_order.value;
  } else if (w.form == MatmulForm::kProjection && w.batch > 1) {
    rate = w.batch <= kFewProjections ? c.projection_few.value : c.projection_many.value;
  }
  const double rows = static_cast<double>(w.rows_per_core) / c.rows_half_rate.value;
  rate *= std::min(1.0, std::pow(std::max(rows, 1e-9), c.rows_exponent.value));
  if (w.split_reduction) rate *= c.split_reduction.value;
  return rate * w.compute_scale;
}

double compute_ns(const CostConfig& c, const OpWork& w) {
  const auto cores = static_cast<double>(std::max<int64_t>(w.cores, 1));
  return static_cast<double>(w.macs) / cores / matmul_rate(c, w) +
         static_cast<double>(w.elements) / cores / c.pointwise_ns_core.value;
}

double plain_memory_ns(const CostConfig& c, double read, double written) {
  return (read + written) / c.memory_gb_s.value + c.mixing_ns_byte.value * std::min(read, written);
}

// What a kernel in coarse tiles loses: tiles that do not fill the cores, and a working set that does not fit.
double tile_efficiency(const CostConfig& c, const OpWork& w) {
  if (w.tile_rows == 0) return 1;
  const double rows = static_cast<double>(w.tile_rows) / c.tile_rows.value;
  const double columns = static_cast<double>(w.tile_columns) / c.tile_columns.value;
  const double fill = std::min(
      c.tile_most.value, std::pow(rows, c.tile_rows_exponent.value) * std::pow(columns, c.tile_columns_exponent.value));
  if (w.working_set_bytes == 0) return fill;
  const double share = c.overflow_bytes.value / static_cast<double>(w.working_set_bytes);
  return fill * std::min(1.0, std::pow(share, c.overflow_exponent.value));
}

double spilled_bytes(const CostConfig& c, const OpWork& w) {
  if (w.tile_rows == 0 || w.macs == 0) return 0;
  const double area = static_cast<double>(w.tile_rows) * static_cast<double>(w.tile_columns);
  const double again = c.spill_slope.value * std::log2(area / c.spill_area.value);
  return static_cast<double>(w.read_bytes) * std::clamp(again, 0.0, c.spill_most.value);
}

double reduction_rate(const CostConfig& c, const OpWork& w) {
  const double rows = static_cast<double>(w.reduced_rows);
  const double rate =
      std::min(c.memory_gb_s.value,
               c.reduction_floor.value + c.reduction_gain.value * std::exp(-rows / c.reduction_decay.value));
  const auto cores = static_cast<uint64_t>(std::clamp<int64_t>(w.cores, 1, 32));
  return rate * c.reduction_cores[static_cast<size_t>(std::bit_width(cores)) - 1].value;
}

double falling_rate(const FallingRate& rate, int64_t cores) {
  const double steps = std::log2(static_cast<double>(std::max<int64_t>(cores, 1)));
  return std::max(rate.floor.value, rate.start.value - rate.slope.value * steps);
}

// Read at full length, written in requests of the runs that lie together; few requests are in flight.
double restickify_ns(const CostConfig& c, const OpWork& w) {
  const auto read = static_cast<double>(w.read_bytes), written = static_cast<double>(w.write_bytes);
  const double most = c.request_bytes_most.value;
  const double run =
      w.run_bytes == 0 ? most : std::clamp(static_cast<double>(w.run_bytes), c.request_bytes_least.value, most);
  const auto cores = static_cast<double>(std::max<int64_t>(w.cores, 1));
  const double requests = written / run * c.request_ns_core.value / cores;
  return read / c.restickify_gb_s.value + std::max(written / c.restickify_gb_s.value, requests);
}

// Of a transport, which has a rate of its own; 0 for work that shares the memory with its bundle.
double transport_ns(const CostConfig& c, const OpWork& w) {
  const auto read = static_cast<double>(w.read_bytes), written = static_cast<double>(w.write_bytes);
  switch (w.kind) {
    case WorkKind::kRestickify:
      return restickify_ns(c, w);
    case WorkKind::kReduction:
      return read / reduction_rate(c, w) + written / c.memory_gb_s.value +
             c.mixing_ns_byte.value * std::min(read, written);
    case WorkKind::kOuterReduction:
      return (read + written) / c.outer_reduction_gb_s.value;
    case WorkKind::kBroadcast:
      return (read + written) / c.broadcast_gb_s.value;
    case WorkKind::kConcat:
      return (read + written) / falling_rate(c.concat, w.cores);
    case WorkKind::kTranspose:
      return (read + written) / falling_rate(c.transpose, w.cores);
    case WorkKind::kOther:
      return 0;
  }
  return 0;
}

// Fitted for splits of 2 to 8; beyond, the formula is known to be too slow (torch-spyre clamps it too).
double relayout_ns(const CostConfig& c, const LxRelayout& move) {
  const auto split = static_cast<double>(std::clamp<int64_t>(move.split, 2, 8));
  const double per_run = c.relayout_run_base.value + c.relayout_run_split.value * std::log2(split);
  return static_cast<double>(move.runs) * per_run + static_cast<double>(move.bytes) * split / c.relayout_bytes_ns.value;
}

}  // namespace

OpTime bundle_time(const CostConfig& config, std::span<const OpWork> works) {
  OpTime time;
  double read = 0, written = 0, slowdown = 0;
  for (const OpWork& w : works) {
    time.compute += compute_ns(config, w);
    for (const LxRelayout& move : w.relayouts) time.relayout += relayout_ns(config, move);
    if (w.kind != WorkKind::kOther) {
      time.memory += transport_ns(config, w);
      continue;
    }
    const double in = static_cast<double>(w.read_bytes) + spilled_bytes(config, w);
    const auto out = static_cast<double>(w.write_bytes);
    read += in;
    written += out;
    const double efficiency = tile_efficiency(config, w);
    if (efficiency != 1) slowdown += plain_memory_ns(config, in, out) * (1 / efficiency - 1);
  }
  time.memory += plain_memory_ns(config, read, written) + slowdown;
  return time;
}

OpTime time_of(const CostConfig& config, const OpWork& work) {
  return bundle_time(config, {&work, 1});
}

double estimate_ns(const CostConfig& config, const OpWork& work) {
  return time_of(config, work).total();
}

double transfer_ns(const CostConfig& config, int64_t bytes) {
  return static_cast<double>(bytes) / config.pcie_gb_s.value + config.pcie_ns.value;
}

double all_reduce_ns(const CostConfig& config, int64_t bytes, int64_t cards) {
  if (cards < 2) return 0;
  const bool switched = cards <= kCardsBelowOneSwitch;
  const double rate = switched ? config.link_gb_s.value : config.host_link_gb_s.value;
  const double latency = switched ? config.link_ns.value : config.host_link_ns.value;
  const auto messages = static_cast<double>(2 * (cards - 1));
  return messages * (static_cast<double>(bytes) / static_cast<double>(cards) / rate + latency);
}

// torch-spyre's planner (M): 1536 MAC/ns/core, exponent 0.25, a split reduction doubles the compute; a part that more
// than 8 cores read costs (fanout / 8)^0.75; each further partial sum costs 1e-3 us per element of a core, 1e-4 us
// where each matrix of a batch has a weight of its own.
double planner_ns(const MatmulDivision& d) {
  const double efficiency = std::min(1.0, std::pow(static_cast<double>(d.rows_per_core) / 64, 0.25));
  const double compute = static_cast<double>(d.macs) / static_cast<double>(d.cores) / (1536 * efficiency) *
                         (d.reduction_splits > 1 ? 2 : 1);
  auto traffic = [](int64_t bytes, int64_t fanout) {
    return static_cast<double>(bytes) / 204.8 * std::max(1.0, std::pow(static_cast<double>(fanout) / 8, 0.75));
  };
  const double memory = traffic(d.x_bytes, d.x_fanout) + traffic(d.w_bytes, d.w_fanout) + traffic(d.out_bytes, 1);
  const double element_ns = d.batched ? 0.1 : 1.0;
  const double partial = static_cast<double>(d.reduction_splits - 1) * static_cast<double>(d.out_elements) *
                         static_cast<double>(d.reduction_splits) / static_cast<double>(d.cores) * element_ns;
  return std::max(compute, memory) + partial;
}

OpWork attention_work(int64_t query, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t keys,
                      int64_t element_bytes) {
  OpWork work;
  work.macs = 2 * query * heads * keys * head_size;  // Q K^T and P V
  work.elements = 4 * query * heads * keys;          // scale, maximum, exponential, sum
  work.read_bytes = (query * heads + 2 * keys * kv_heads) * head_size * element_bytes;
  work.write_bytes = query * heads * head_size * element_bytes;
  // KV heads are a batch dimension; the rows of one are divided further while each part keeps a full rate's rows.
  const int64_t rows = query * heads / std::max<int64_t>(kv_heads, 1);
  const int64_t parts = std::clamp<int64_t>(rows / kFullRateRows, 1, std::max<int64_t>(1, kCores / kv_heads));
  work.cores = std::min<int64_t>(kCores, kv_heads * parts);
  work.rows_per_core = rows / parts;
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
  work.cores = std::min<int64_t>(kCores, lanes * kv_heads);
  return work;
}

}  // namespace spyre::device
