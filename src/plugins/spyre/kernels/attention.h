// Attention kernels: online softmax of many query rows over the keys of one KV head (docs/numerics.md §6).
//
// The caller walks a sequence in ranges of 512 keys at absolute multiples. For each range it resets a state, calls
// attend once or more with the range's 64-token groups in ascending order, and merges the state into that of the ranges
// before it; at the end, finish writes the rounded result. Ranges may be computed by different threads, in any order;
// only the merges are ordered. Whatever the other rows of a call, however the groups of a range are split over calls,
// and whether or not a range without a visible key is visited, each row gets the bits of attend_reference
// (base/vector_math.h).
//
// Rows: a row is one query head at one position. `group` query heads share the KV head; row r is head r % group of
// position r / group, so that one call takes decode (one position) as well as a chunk of a prompt. All rows of a
// position see the same keys: the interval [lo, hi) of absolute positions, which is where causality, window and length
// end up.
//
// Kernels are plain functions: any thread, no state, no allocation (about 24 KiB of stack). The thread holds
// ScopedFlushDenormals. This header is included by files compiled for one instruction set: plain data and extern
// functions.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/dtype.h"

namespace spyre::kernels {

constexpr int64_t kGroupTokens = 64;  // one step of the online softmax
constexpr int64_t kRangeGroups = 8;   // groups of one range
constexpr int64_t kMaxHeadDim = 512;

// 64 tokens of one KV head, in the order of kv_pages.h.
struct KvGroup {
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
};

struct KeyInterval {
  int64_t lo = 0;
  int64_t hi = 0;  // lo >= hi: nothing is visible
};

// State of `rows` rows, owned by the caller: m[rows], l[rows], acc[rows][attend_stride(head_dim)].
struct AttendState {
  float* m = nullptr;
  float* l = nullptr;
  float* acc = nullptr;
};

// Floats between the acc rows of a state: head_dim rounded up to sixteen lanes.
__attribute__((always_inline)) constexpr int64_t attend_stride(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

// Where the rows of q or of the result lie: row r at data + (r / group) * position_stride + (r % group) * head_stride
// words.
template <typename Word>
struct AttendRows {
  Word* data = nullptr;
  int64_t group = 1;
  int64_t head_stride = 0;
  int64_t position_stride = 0;
};

struct AttendCall {
  AttendRows<const uint16_t> q;
  int64_t rows = 0;                      // a multiple of q.group
  int64_t head_dim = 0;                  // 1..kMaxHeadDim, logical
  const KeyInterval* visible = nullptr;  // one per position
  const KvGroup* groups = nullptr;       // group_count of them, consecutive; one that no row sees is never read
  int64_t first_group = 0;               // absolute: groups[0] holds positions from 64 * first_group
  int64_t group_count = 0;               // all inside one range: first_group % 8 + group_count <= 8
  KvGroup ahead;                         // a hint: the group that is read next after these, or nulls
  float scale = 1;
  float soft_cap = 0;  // 0: none
  AttendState state;   // in and out
};

struct AttentionKernels {
  const char* name;  // "attention_bf16_pair_avx512_bf16", ...
  DType dtype;
  DotOrder order;
  CpuLevel level;  // the least machine that runs it
  void (*attend)(const AttendCall& call);
  // Merges the state of a later range into `earlier`.
  void (*merge)(const AttendState& earlier, const AttendState& later, int64_t rows, int64_t head_dim);
  // out = round16(acc / l), or 0 for a row that saw no key.
  void (*finish)(const AttendState& state, int64_t rows, int64_t head_dim, const AttendRows<uint16_t>& out);
};

// The empty state.
void attend_reset(const AttendState& state, int64_t rows, int64_t head_dim);

// The fastest kernels that `features` run. throws kUnsupported unless (dtype, order) is (f16, sequential), (bf16, pair)
// or (bf16, tile).
const AttentionKernels& select_attention_kernels(const CpuFeatures& features, DType dtype, DotOrder order);

// Every table of this build, the faster ones of each (dtype, order) first.
struct AttentionKernelList {
  const AttentionKernels* first;
  const AttentionKernels* last;
  const AttentionKernels* begin() const { return first; }
  const AttentionKernels* end() const { return last; }
};
AttentionKernelList all_attention_kernels();

// --- three per instruction set: f16, bf16 pair and bf16 tile. Constants: see kRowKernelsPortable in rows.h ---
extern const AttentionKernels kAttentionKernelsPortable[3], kAttentionKernelsAvx2[3], kAttentionKernelsAvx512[3],
    kAttentionKernelsAvx512Bf16[3];

}  // namespace spyre::kernels
