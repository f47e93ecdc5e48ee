// The card's memory, as an account: what is allocated where, and what has been moved.
//
// Addresses are handed out first fit at 128-byte alignment in segments of 16 GiB: an allocation that fits into a
// segment crosses no boundary, a larger one begins at one. About 112 GB of the card's 128 GB are usable. Not
// thread-safe; used from the thread that drives the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace spyre::device {

inline constexpr int64_t kDeviceMemoryBytes = int64_t{112} << 30;
inline constexpr int64_t kSegmentBytes = int64_t{16} << 30;

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t capacity = kDeviceMemoryBytes);

  // A reservation ends when the returned pointer dies. Throws Error(kRuleViolation) (L-22) with the arithmetic.
  std::shared_ptr<int64_t> reserve(int64_t bytes, const std::string& label);

  int64_t used() const;
  int64_t capacity() const;
  std::map<std::string, int64_t> used_by_label() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct TransferTotals {
  int64_t count = 0;
  int64_t card_bytes = 0;     // what the DMA moves: padded, in sticks
  int64_t logical_bytes = 0;  // what was meant
};

// Counted by the device at every transfer, by direction and label ("weights", "token_ids", "masks", ...).
struct TransferCounters {
  std::map<std::string, TransferTotals> to_device, to_host;
  TransferTotals total_to_device() const;
  TransferTotals total_to_host() const;
};

}  // namespace spyre::device
