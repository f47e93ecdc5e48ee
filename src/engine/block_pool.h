// The free list of KV blocks. Block 0 is the null block: it is never handed out. Plain bookkeeping, single-threaded;
// owned by the engine. A block may be taken and given back in any order; the one given back last is taken first, which
// keeps the memory in use small and warm.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace spyre::engine {

class BlockPool {
 public:
  // |num_blocks| counts the null block. REQUIRES: >= 1.
  explicit BlockPool(int64_t num_blocks) : taken_(num_blocks, false) {
    SPYRE_CHECK(num_blocks >= 1, "{}", num_blocks);
    free_.reserve(num_blocks - 1);
    for (int64_t block = num_blocks - 1; block >= 1; --block) free_.push_back(static_cast<int32_t>(block));
  }

  int64_t available() const { return static_cast<int64_t>(free_.size()); }
  int64_t usable() const { return static_cast<int64_t>(taken_.size()) - 1; }

  // Throws Error(kResourceExhausted) when no block is free.
  int32_t take() {
    if (free_.empty()) throw_error(ErrorCode::kResourceExhausted, "all {} KV blocks are in use", usable());
    const int32_t block = free_.back();
    free_.pop_back();
    taken_[block] = true;
    return block;
  }

  void give_back(int32_t block) {
    SPYRE_CHECK(block > 0 && block <= usable() && taken_[block], "block {} is not in use", block);
    taken_[block] = false;
    free_.push_back(block);
  }

 private:
  std::vector<bool> taken_;
  std::vector<int32_t> free_;
};

}  // namespace spyre::engine
