// The KV cache as the scheduler sees it: which block belongs to whom, and which finished content is still there to be
// found by a request that starts alike.
//
// Block 0 is the null block and is never handed out. A block is in one of three states:
//   held     by one or more tables (a prefix is shared by reference; the writer of a block is always alone with it)
//   cached   by no table, but its content can be found; evicted, the least recently used first, when blocks run out
//   free     neither
// available() counts the last two. Only full blocks are cached, and only what publish() names: content of a step that
// failed never gets there. A table gives its blocks back from the end, so a prefix loses its tail first.
//
// Plain bookkeeping, single-threaded; owned by the engine, used by the scheduler.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefix_tree.h"

namespace spyre::engine {

// The blocks of one sequence, in order. Made and changed by a KvCacheManager only; release() before it goes.
class BlockTable {
 public:
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  friend class KvCacheManager;
  std::vector<int32_t> blocks_;
  int64_t published_ = 0;             // leading blocks whose content is in the tree (this block, or an equal one)
  PrefixTree::Node* node_ = nullptr;  // of the last of them, or the root; pinned
};

class KvCacheManager {
 public:
  // |num_blocks| counts the null block. REQUIRES: num_blocks >= 2, block_size >= 1. Without |prefix_caching| nothing is
  // ever found again.
  KvCacheManager(int64_t num_blocks, int64_t block_size, bool prefix_caching = true);

  int64_t block_size() const { return block_size_; }
  int64_t usable() const { return static_cast<int64_t>(refs_.size()) - 1; }
  int64_t available() const { return static_cast<int64_t>(free_.size()) + num_cached_; }
  int64_t cached() const { return num_cached_; }  // cached and held by no table
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }

  // The longest cached prefix of |tokens|, at least its last token left out: that one must be computed to know what
  // follows it.
  struct Prefix {
    int64_t blocks = 0;
    int64_t idle = 0;  // of them: held by nobody, so no longer available once adopted
  };
  Prefix find_prefix(const std::string& salt, std::span<const int32_t> tokens) const;

  // Gives an empty table the first |blocks| blocks that find_prefix() has found. REQUIRES: nothing changed since.
  void adopt_prefix(BlockTable& table, const std::string& salt, std::span<const int32_t> tokens, int64_t blocks);
  // Blocks for the first |tokens| tokens. False, and nothing changed, when there are not enough.
  bool grow(BlockTable& table, int64_t tokens);
  // |tokens|: those whose K and V are computed; every full block of them may be found from now on.
  void publish(BlockTable& table, const std::string& salt, std::span<const int32_t> tokens);
  void release(BlockTable& table);

  // Throws kInternal unless the books balance: every block is in exactly one state, and |held| (all blocks of all
  // tables, shared ones once for each) are exactly the references. For tests.
  void check(std::span<const int32_t> held) const;

 private:
  int32_t take();
  void reference(int32_t block);
  void push_cached(int32_t block);
  void unlink(int32_t block);
  void start(BlockTable& table, const std::string& salt);

  int64_t block_size_;
  bool prefix_caching_;
  std::vector<int32_t> refs_;             // per block: tables that hold it
  std::vector<PrefixTree::Node*> nodes_;  // per block: what it holds, if that can be found
  std::vector<int32_t> free_;             // taken from the end: what was given back last is warm
  // Cached blocks by last use, a ring through block 0: next_[0] is the least recent.
  std::vector<int32_t> next_, previous_;
  int64_t num_cached_ = 0;
  PrefixTree tree_;
};

}  // namespace spyre::engine
