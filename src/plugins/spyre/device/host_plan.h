// The host plan of a program: how the CPU computes it. Steps over logical extents and live rows only, run by all
// members of a thread team; no allocation, no lock, no system call.
//
// A step alone divides its work among the members and a barrier follows it. Most steps never need one, because row r of
// what they write depends on row r of what they read and on nothing else that the plan computes: they are *rowwise*.
// The compiler therefore cuts the steps into *segments* (a run of rowwise steps, or one that is not) and each segment
// into *phases*, and the executor (host_executor.h) runs them in one of two ways:
//
//   many rows   each member takes its rows through all steps of a segment, a chunk of rows at a time so that what the
//               steps hand on stays in its cache. A barrier per segment.
//   few rows    each member takes its columns of a product, and of whatever follows the product column by column
//               (rotation, activation, KV store), for all rows. A barrier per phase.
//
// Neither changes a bit: who computes an element is not part of its definition (docs/numerics.md).
//
// The compiler makes a plan once per program; it is immutable and shared. It owns no memory: a HostFrame says where
// things are for one run of one member.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/team.h"

namespace spyre::attention {
struct StepTables;
}

namespace spyre::device {

struct TensorStore;

// A dimension of a strided window on a slot's elements. With |per_row| > 0 it grows with the run: its extent is then
// live rows * per_row, and |extent| is what it is at the bucket.
struct HostDim {
  int64_t extent = 1;
  int64_t stride = 0;  // in elements
  int64_t per_row = 0;

  int64_t live(int64_t rows) const { return per_row > 0 ? rows * per_row : extent; }
};

struct HostView {
  int32_t slot = -1;
  int64_t offset = 0;  // in elements
  DType dtype = DType::kF16;
  std::vector<HostDim> dims;

  int rank() const { return static_cast<int>(dims.size()); }
  bool last_contiguous() const { return dims.empty() || dims.back().extent == 1 || dims.back().stride == 1; }
};

// A place in a slot.
struct HostPlace {
  int32_t slot = -1;
  int64_t offset = 0;  // in elements
};

// Where the slots of one run are. Slot numbers: the plan's table says what each is.
struct HostFrame {
  int64_t rows = 0;                      // live rows
  std::span<std::byte* const> slots;     // base address of each slot, as this member sees it
  std::span<TensorStore* const> stores;  // the store behind each slot; null for arena slots
  const attention::StepTables* tables = nullptr;
  std::byte* scratch = nullptr;  // this member's: scratch_bytes() of the plan, 64-byte aligned
};

template <typename T>
T* at(const HostFrame& frame, HostPlace place) {
  return reinterpret_cast<T*>(frame.slots[place.slot]) + place.offset;
}

// One operand of a rowwise step. Its row r begins at offset + r * row_stride of the slot. Where |by_column|, column c
// of the step is element c of that row; otherwise the whole row (or one thing for all rows) goes into every column.
struct StepAccess {
  int32_t slot = -1;
  int64_t offset = 0, row_stride = 0;  // in elements
  bool writes = false;
  bool by_column = false;
};

// What the compiler has to know of a step to cut the plan into phases.
struct StepForm {
  bool rowwise = false;
  int64_t columns = 0;  // 0: cannot be divided by columns
  int64_t unit = 1;     // division at multiples of this
  int64_t cost = 0;     // of a column, of a product: its length; what follows a product costs little beside it
  std::vector<StepAccess> accesses;  // of a rowwise step: all of them, but for its weights
};

class HostStep {
 public:
  virtual ~HostStep() = default;
  // The whole step, called by every member |thread| of |threads|.
  virtual void run(const HostFrame& frame, int thread, int threads) const = 0;
  virtual StepForm form() const { return {}; }
  // REQUIRES: rowwise. The live rows [rows.begin, rows.end).
  virtual void run_rows(const HostFrame& frame, Range rows) const;
  // REQUIRES: columns > 0. The same for some of the columns: ranges ascend, do not overlap, and begin and end at
  // multiples of the unit or at the end.
  virtual void run_columns(const HostFrame& frame, Range rows, std::span<const Range> columns) const;
  virtual std::string describe() const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

enum class SlotKind : uint8_t { kArena, kInput, kParameter, kState, kOutput };

struct HostSlot {
  SlotKind kind = SlotKind::kArena;
  int32_t index = 0;      // which input, parameter, state or output
  int64_t row_bytes = 0;  // where the rows dimension is outermost: bytes from row to row
  // kArena. A private slot is handed from step to step within one segment: with many rows each member has its own, for
  // one chunk of rows; with few rows they share it. Its offset is that of a chunk.
  bool is_private = false;
  size_t arena_offset = 0;
};

// Columns that several steps of a phase compute one after the other for the same lanes: lane l is columns
// [l * width, (l + 1) * width) of [0, columns), shifted by an offset of each step's own.
struct HostChain {
  int64_t columns = 0, width = 0;
  int64_t cost = 0;  // of a lane, relative to those of other chains
  int64_t lanes() const { return (columns + width - 1) / width; }
};

// A step's part in a chain.
struct HostPiece {
  int32_t chain = 0;
  int64_t offset = 0;
};

inline constexpr int kMaxChains = 8;
inline constexpr int kMaxReplicas = 8;

// A slot that a prologue writes, in a member's replica. The replica of R rows has it at R * offset.
struct HostReplica {
  int32_t slot = -1;
  size_t offset = 0;  // in bytes
  bool only = false;  // nothing behind the phase reads it: it need not exist anywhere else
};

// Steps between two barriers when rows are few.
struct HostPhase {
  enum class Kind : uint8_t {
    kWhole,    // one step, which divides its work itself
    kRows,     // rowwise steps, each member its rows
    kColumns,  // products and what follows them, by chains
  };
  Kind kind = Kind::kWhole;
  int32_t first = 0, count = 0;  // steps
  // kColumns: so many rows steps stand before the columns. With very few rows every member does them for itself instead
  // of waiting for the others: into its replica of the slots that they write.
  int32_t prologue = 0;
  std::vector<HostReplica> replicas;           // of the slots that the prologue writes; none: it is always done by rows
  std::vector<HostChain> chains;               // at most kMaxChains
  std::vector<std::vector<HostPiece>> pieces;  // of each step behind the prologue, by ascending offset
};

// Steps between two barriers when rows are many: a run of rowwise steps, or one step that is not.
struct HostSegment {
  bool rowwise = false;
  int32_t first = 0, count = 0;  // steps
  std::vector<int32_t> private_slots;
};

inline constexpr int64_t kChunkRows = 96;  // of one chunk: as many as the products take in one block

struct HostPlan {
  std::vector<HostSlot> slots;
  std::vector<std::unique_ptr<HostStep>> steps;
  std::vector<HostSegment> segments;
  std::vector<HostPhase> phases;
  size_t arena_bytes = 0;    // shared
  size_t chunk_bytes = 0;    // private slots of one chunk of kChunkRows rows
  size_t replica_bytes = 0;  // of one row
  size_t scratch_bytes = 0;  // per thread
};

// What is done between barriers when rows are few, a line per phase: "{norm} gemm, rotate" where a prologue stands in
// braces.
std::vector<std::string> describe_phases(const HostPlan& plan);

}  // namespace spyre::device
