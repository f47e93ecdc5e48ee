// What an operation would take on the card: an estimate from public figures, each with where it comes from and how sure
// it is. Two configurations are kept apart and never averaged: "measured" (a fitted model of the software stack, mid
// 2026) and "spec" (the peaks). Nothing here was measured by this project; docs/cost.md has every figure, and how near
// the model comes to what others published.
//
// Of a bundle (operations that hand their results on inside the card) T = max(compute, memory) + relayout; bundles run
// one after another. Bytes are card bytes, padding included; what stays in the scratchpad is free; an operand that many
// cores need is read once. All times are nanoseconds. Plain values; safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plugins/spyre/device/lx.h"

namespace spyre::device {

struct Figure {
  double value = 0;
  std::string_view unit;
  std::string_view confidence;  // H, M, L, INF, UNK as in rules.h
  std::string_view provenance;
};

// A rate that falls with the number of cores: max(floor, start - slope x log2(cores)), GB/s read and written.
struct FallingRate {
  Figure start, slope, floor;
};

struct CostConfig {
  std::string_view name;
  // Products
  Figure macs_per_ns_core;   // DL16
  Figure rows_half_rate;     // rows per core below which the rate falls
  Figure rows_exponent;      //   as (rows / rows_half_rate)^exponent; 0 = never
  Figure bmm_default_order;  // MAC/ns/core of four or more matrices on eight or more cores, batch not outermost
  Figure projection_few;     // MAC/ns/core of [b, m, k] x [k, n] with b of 2 to 4
  Figure projection_many;    //   and more
  Figure split_reduction;    // share of the rate when K is divided over cores
  // Elementwise work
  Figure pointwise_ns_core;  // elements per ns and core
  // Memory
  Figure memory_gb_s;        // one way
  Figure mixing_ns_byte;     // added per byte of the smaller of read and written
  Figure overflow_bytes;     // working set per core of a tiled kernel from which the scratchpad overflows
  Figure overflow_exponent;  //   T / min(1, (overflow_bytes / working set)^exponent)
  Figure tile_rows, tile_rows_exponent, tile_columns, tile_columns_exponent, tile_most;  // of a coarse tile
  Figure spill_area, spill_slope, spill_most;  // operands read again: min(most, slope x log2(area / spill_area))
  // Reductions read at min(memory, floor + gain x exp(-rows / decay)) x the factor of the number of cores
  Figure reduction_floor, reduction_gain, reduction_decay;
  std::array<Figure, 6> reduction_cores;  // of 1, 2, 4, 8, 16, 32 cores
  // Transports
  Figure restickify_gb_s, request_bytes_least, request_bytes_most, request_ns_core;
  Figure outer_reduction_gb_s, broadcast_gb_s;
  FallingRate concat, transpose;
  Figure relayout_run_base, relayout_run_split, relayout_bytes_ns;  // scratchpad to scratchpad, over the ring
  // Around programs
  Figure launch_ns;                     // per program
  Figure pcie_gb_s, pcie_ns;            // host to card: rate, and per transfer
  Figure link_gb_s, link_ns;            // card to card below one switch (at most four cards): rate, and per message
  Figure host_link_gb_s, host_link_ns;  // card to card through the host's memory
};

const CostConfig& measured_costs();
const CostConfig& spec_costs();

struct NamedFigure {
  std::string_view name;
  const Figure* figure = nullptr;
};
// Every figure of a configuration, in the order above.
std::vector<NamedFigure> figures_of(const CostConfig& config);

enum class WorkKind : uint8_t {
  kOther,  // products, elementwise, copies: bytes at the memory's rate
  kRestickify,
  kReduction,       // along the stick, alone in its bundle
  kOuterReduction,  // outside of the stick
  kBroadcast,
  kConcat,
  kTranspose,
};

// How the matrices of a product lie: a plain product, or a batch of them with the batch outermost, has the full rate.
enum class MatmulForm : uint8_t { kFull, kBatchDefaultOrder, kProjection };

struct OpWork {
  int64_t macs = 0;
  int64_t elements = 0;  // pointwise work
  int64_t read_bytes = 0, write_bytes = 0;
  int64_t cores = 1;
  int64_t rows_per_core = 64;
  bool split_reduction = false;  // a split K uses one corelet of two
  WorkKind kind = WorkKind::kOther;
  MatmulForm form = MatmulForm::kFull;
  int64_t batch = 1;          // matrices of a batched product or projection
  double compute_scale = 1;   // FP8 2, INT8 4, INT4 8: products only
  int64_t reduced_rows = 0;   // of a reduction: results
  int64_t run_bytes = 0;      // of a restickify: bytes that lie together where it writes; 0 = whole requests
  int64_t scratch_bytes = 0;  // read and written in the scratchpad: free, counted for reports
  // A kernel that walks coarse tiles: 0 = it does not.
  int64_t tile_rows = 0, tile_columns = 0, working_set_bytes = 0;
  std::vector<LxRelayout> relayouts = {};  // before the work, from scratchpad to scratchpad
};

struct OpTime {
  double compute = 0, memory = 0, relayout = 0;  // ns
  double total() const { return (compute > memory ? compute : memory) + relayout; }
};

// One operation, as a bundle of its own.
OpTime time_of(const CostConfig& config, const OpWork& work);
double estimate_ns(const CostConfig& config, const OpWork& work);
// Operations that hand their results on inside the card: computing and moving overlap between all of them.
OpTime bundle_time(const CostConfig& config, std::span<const OpWork> works);

// Host to card or back.
double transfer_ns(const CostConfig& config, int64_t bytes);
// A ring all-reduce of |bytes| on each of |cards| cards: 2 (n - 1) messages of bytes / n.
double all_reduce_ns(const CostConfig& config, int64_t bytes, int64_t cards);

// What the card's planner ranks the divisions of a matmul by: optimistic rates, only good for comparing.
struct MatmulDivision {
  int64_t macs = 0;
  int64_t cores = 1, reduction_splits = 1;
  int64_t rows_per_core = 1;
  int64_t out_elements = 0;
  // Bytes of the operands, and how many cores read the same part of each.
  int64_t x_bytes = 0, x_fanout = 1, w_bytes = 0, w_fanout = 1, out_bytes = 0;
  bool batched = false;  // every matrix of a batch has a weight of its own
};
double planner_ns(const MatmulDivision& division);

// Attention of one step depends on its keys, which a program does not know: |query| padded rows of |heads| over |keys|
// padded keys.
OpWork attention_work(int64_t query, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t keys,
                      int64_t element_bytes);
// The same for a batched decode: one query row of each of |lanes| over |keys| padded keys, in one operation.
OpWork batched_attention_work(int64_t lanes, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t keys,
                              int64_t element_bytes);

}  // namespace spyre::device
