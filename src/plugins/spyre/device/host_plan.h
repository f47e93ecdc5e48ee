// The host plan of a program: how the CPU computes it. Steps over logical extents, run one after the other by all
// members of a thread team, with a barrier after each; live rows only; no allocation, no lock, no system call.
//
// The compiler makes it once per program; it is immutable and shared. It owns no memory: a HostFrame says where things
// are for one run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

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

// Where the slots of one run are. Slot numbers: the plan's table says what each is.
struct HostFrame {
  int64_t rows = 0;                      // live rows
  std::span<std::byte* const> slots;     // base address of each slot
  std::span<TensorStore* const> stores;  // the store behind each slot; null for arena slots
  const attention::StepTables* tables = nullptr;
  std::span<std::byte* const> scratch;  // [threads], each scratch_bytes() of the plan, 64-byte aligned
};

class HostStep {
 public:
  virtual ~HostStep() = default;
  // Called by every member |thread| of |threads|; a barrier follows.
  virtual void run(const HostFrame& frame, int thread, int threads) const = 0;
  virtual std::string describe() const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

enum class SlotKind : uint8_t { kArena, kInput, kParameter, kState, kOutput };

struct HostSlot {
  SlotKind kind = SlotKind::kArena;
  int32_t index = 0;        // which input, parameter, state or output
  size_t arena_offset = 0;  // kArena
};

struct HostPlan {
  std::vector<HostSlot> slots;
  std::vector<std::unique_ptr<HostStep>> steps;
  size_t arena_bytes = 0;
  size_t scratch_bytes = 0;  // per thread
};

}  // namespace spyre::device
