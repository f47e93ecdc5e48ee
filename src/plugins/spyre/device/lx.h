// LX: the scratchpad that each of the card's 32 cores has beside its memory. Software managed, no cache: a buffer lives
// there because the compiler said so (compiler/plan_lx.h), at one address that serves all cores.
//
// Figures from torch-spyre (H): 2 MiB a core, of which the planner may give out round_up_128((2 MiB - 64 KiB) x 0.8);
// the rest is the backend's, for what the stages of one operator hand on to each other.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace spyre::device {

inline constexpr int64_t kLxBytes = int64_t{2} << 20;
inline constexpr int64_t kLxPlannedBytes = 1'625'344;

// Why a buffer lives in the scratchpad, or not.
enum class LxReason : uint8_t {
  kNotPlanned,
  kResident,         // made there and never in device memory
  kClonedIn,         // an input or parameter that is read into it once and from it afterwards
  kClonedOut,        // an output that is written to device memory and also kept for its readers
  kView,             // shares the memory of its base: see there
  kReadOnce,         // an input or parameter that one operator reads: nothing to save
  kUnread,           // an output that no operator reads
  kMutated,          // a state, or written by several operations
  kPartialSums,      // its parts are sums that neighbouring cores still add up
  kRestickifyInput,  // a restickify reads it, across the cores (torch-spyre #4153 would prove its reads local)
  kExternUser,       // an operation outside of the program's own kernels reads or writes it
  kGatherOperand,    // an index, or the table that one looks up: indirect access reads device memory
  kPartialRead,      // somebody reads a part of it
  kViewsDiffer,      // a reader's cores want other parts than the writer's cores have
  kTooLarge,         // a core's part alone is beyond the scratchpad
  kNoRoom,           // others are worth more at that time
};
std::string_view to_string(LxReason reason);

struct LxVerdict {
  LxReason reason = LxReason::kNotPlanned;
  int64_t address = -1;        // in the scratchpad of every core, 128-byte aligned
  int64_t bytes_per_core = 0;  // total / cores of the writer; 0 where the cores have no common view
  int32_t op = -1;             // the operation that stands in the way
  bool resident() const { return address >= 0; }
};

// A move from scratchpad to scratchpad over the ring, as its cost sees it (device/cost.h).
struct LxRelayout {
  int64_t runs = 0;   // of a core
  int64_t split = 2;  // cores that a run is spread over
  int64_t bytes = 0;  // of a core
  bool operator==(const LxRelayout&) const = default;
};

// A second copy of a resident buffer, in the parts that other readers' cores want.
struct LxCopy {
  int32_t buffer = -1;
  int32_t first = 0, last = 0;                      // operations: before the first it is made, the last reads it last
  std::vector<std::pair<int32_t, size_t>> readers;  // operation, operand
  int64_t address = -1, bytes_per_core = 0;
  LxRelayout move;
};

// What planning came to, for a whole program.
struct LxSummary {
  int64_t peak_bytes = 0;   // of a core
  int64_t candidates = 0;   // buffers that nothing but room stands in the way of
  int64_t resident = 0;     // of them: those that found it
  int64_t saved_bytes = 0;  // of device memory traffic
};

}  // namespace spyre::device
