#include "plugins/spyre/device/memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "plugins/spyre/device/layout.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {

struct DeviceMemory::State {
  int64_t capacity = 0;
  std::map<int64_t, int64_t> live;  // address -> bytes, ascending
  std::map<std::string, int64_t> by_label;
  int64_t used = 0;

  // First fit; an allocation larger than a segment spans whole segments from a segment boundary on.
  int64_t find(int64_t bytes) const {
    int64_t candidate = 0;
    auto fits_segment = [bytes](int64_t at) {
      if (bytes > kSegmentBytes) return at % kSegmentBytes == 0;
      return at / kSegmentBytes == (at + bytes - 1) / kSegmentBytes;
    };
    auto next_start = [&](int64_t at) { return fits_segment(at) ? at : round_up(at, kSegmentBytes); };
    candidate = next_start(0);
    for (const auto& [address, size] : live) {
      if (candidate + bytes <= address) break;
      candidate = next_start(std::max(candidate, round_up(address + size, kStickBytes)));
    }
    return candidate + bytes <= capacity ? candidate : -1;
  }
};

DeviceMemory::DeviceMemory(int64_t capacity) : state_(std::make_shared<State>()) {
  state_->capacity = capacity;
}

std::shared_ptr<int64_t> DeviceMemory::reserve(int64_t bytes, const std::string& label) {
  const int64_t size = std::max(round_up(bytes, kStickBytes), kStickBytes);
  const int64_t address = state_->find(size);
  if (address < 0) {
    refuse(Rule::kDeviceMemory,
           fmt::format("{} needs {} bytes; {} of {} bytes are in use", label, size, state_->used, state_->capacity));
  }
  state_->live[address] = size;
  state_->by_label[label] += size;
  state_->used += size;
  auto release = [state = state_, label](int64_t* at) {
    const auto found = state->live.find(*at);
    state->used -= found->second;
    state->by_label[label] -= found->second;
    state->live.erase(found);
    delete at;
  };
  return std::shared_ptr<int64_t>(new int64_t(address), release);
}

int64_t DeviceMemory::used() const {
  return state_->used;
}
int64_t DeviceMemory::capacity() const {
  return state_->capacity;
}
std::map<std::string, int64_t> DeviceMemory::used_by_label() const {
  return state_->by_label;
}

namespace {

TransferTotals sum(const std::map<std::string, TransferTotals>& totals) {
  TransferTotals all;
  for (const auto& [label, t] : totals) {
    all.count += t.count;
    all.card_bytes += t.card_bytes;
    all.logical_bytes += t.logical_bytes;
  }
  return all;
}

}  // namespace

TransferTotals TransferCounters::total_to_device() const {
  return sum(to_device);
}
TransferTotals TransferCounters::total_to_host() const {
  return sum(to_host);
}

}  // namespace spyre::device
