// What an operation would take on the card: an estimate from public figures, each with where it comes from and how sure
// it is. Two configurations are kept apart and never averaged: "measured" (a fitted model of the software stack, mid
// 2026) and "spec" (the peaks). Nothing here was measured by this project.
//
// Per operation T = max(compute, memory); operations run one after another.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace spyre::device {

struct Figure {
  double value = 0;
  std::string_view unit;
  std::string_view confidence;  // H, M, L, INF, UNK as in rules.h
  std::string_view provenance;
};

struct CostConfig {
  std::string_view name;
  Figure macs_per_ns_core;  // DL16 matmul
  Figure rows_half_rate;    // rows per core below which the matmul rate falls
  Figure rows_exponent;     //   as (rows / rows_half_rate)^exponent; 0 = never
  Figure memory_gb_s;       // one way
  Figure mixing_ns_byte;    // added per byte of the smaller of read and written
  Figure restickify_gb_s;
  Figure pointwise_ns_core;  // elements per ns and core
  Figure launch_ns;          // per program
};

const CostConfig& measured_costs();
const CostConfig& spec_costs();

struct OpWork {
  int64_t macs = 0;
  int64_t elements = 0;  // pointwise work
  int64_t read_bytes = 0, write_bytes = 0;
  int64_t cores = 1;
  int64_t rows_per_core = 64;
  bool split_reduction = false;  // a split K uses one corelet of two
  bool restickify = false;
};

double estimate_ns(const CostConfig& config, const OpWork& work);

// What the card's planner ranks the divisions of a matmul by: optimistic rates, only good for comparing.
struct MatmulDivision {
  int64_t macs = 0;
  int64_t cores = 1, reduction_splits = 1;
  int64_t rows_per_core = 1;
  int64_t out_elements = 0;
  // Bytes of the operands, and how many cores read the same part of each.
  int64_t x_bytes = 0, x_fanout = 1, w_bytes = 0, w_fanout = 1, out_bytes = 0;
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
