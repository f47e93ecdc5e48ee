#include "engine/kv_cache_manager.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::engine {

KvCacheManager::KvCacheManager(int64_t num_blocks, int64_t block_size, bool prefix_caching)
    : block_size_(block_size), prefix_caching_(prefix_caching) {
  SPYRE_CHECK(num_blocks >= 2 && block_size >= 1, "{} blocks of {}", num_blocks, block_size);
  refs_.assign(num_blocks, 0);
  nodes_.assign(num_blocks, nullptr);
  next_.assign(num_blocks, 0);
  previous_.assign(num_blocks, 0);
  free_.reserve(num_blocks - 1);
  for (int64_t block = num_blocks - 1; block >= 1; --block) free_.push_back(static_cast<int32_t>(block));
}

void KvCacheManager::push_cached(int32_t block) {
  previous_[block] = previous_[0];
  next_[block] = 0;
  next_[previous_[0]] = block;
  previous_[0] = block;
  ++num_cached_;
}

void KvCacheManager::unlink(int32_t block) {
  next_[previous_[block]] = next_[block];
  previous_[next_[block]] = previous_[block];
  --num_cached_;
}

int32_t KvCacheManager::take() {
  int32_t block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = next_[0];
    SPYRE_CHECK(block != 0);
    unlink(block);
    tree_.clear_block(*nodes_[block]);
    nodes_[block] = nullptr;
  }
  refs_[block] = 1;
  return block;
}

void KvCacheManager::reference(int32_t block) {
  if (refs_[block]++ == 0) unlink(block);
}

void KvCacheManager::start(BlockTable& table, const std::string& salt) {
  if (table.node_ != nullptr) return;
  table.node_ = tree_.root(salt);
  tree_.pin(*table.node_);
}

KvCacheManager::Prefix KvCacheManager::find_prefix(const std::string& salt, std::span<const int32_t> tokens) const {
  Prefix prefix;
  const PrefixTree::Node* node = prefix_caching_ ? tree_.find_root(salt) : nullptr;
  const auto most = (static_cast<int64_t>(tokens.size()) - 1) / block_size_;
  while (node != nullptr && prefix.blocks < most) {
    node = tree_.find(*node, tokens.subspan(prefix.blocks * block_size_, block_size_));
    if (node == nullptr || node->block == 0) break;
    ++prefix.blocks;
    if (refs_[node->block] == 0) ++prefix.idle;
  }
  return prefix;
}

void KvCacheManager::adopt_prefix(BlockTable& table, const std::string& salt, std::span<const int32_t> tokens,
                                  int64_t blocks) {
  SPYRE_CHECK(table.blocks_.empty());
  if (blocks == 0) return;
  start(table, salt);
  for (int64_t i = 0; i < blocks; ++i) {
    PrefixTree::Node* node = tree_.find(*table.node_, tokens.subspan(i * block_size_, block_size_));
    SPYRE_CHECK(node != nullptr && node->block != 0, "block {} of a prefix of {}", i, blocks);
    reference(node->block);
    table.blocks_.push_back(node->block);
    tree_.pin(*node);
    tree_.unpin(*table.node_);
    table.node_ = node;
  }
  table.published_ = blocks;
}

bool KvCacheManager::grow(BlockTable& table, int64_t tokens) {
  const int64_t more = blocks_for(tokens) - table.size();
  if (more > available()) return false;
  for (int64_t i = 0; i < more; ++i) table.blocks_.push_back(take());
  return true;
}

void KvCacheManager::publish(BlockTable& table, const std::string& salt, std::span<const int32_t> tokens) {
  const auto full = static_cast<int64_t>(tokens.size()) / block_size_;
  if (!prefix_caching_ || table.published_ >= full) return;
  SPYRE_CHECK(full <= table.size(), "{} > {}", full, table.size());
  start(table, salt);
  for (; table.published_ < full; ++table.published_) {
    const int64_t i = table.published_;
    PrefixTree::Node* node = tree_.child(*table.node_, tokens.subspan(i * block_size_, block_size_));
    tree_.pin(*node);
    tree_.unpin(*table.node_);
    table.node_ = node;
    if (node->block != 0) continue;  // another sequence computed the same: ours stays private
    tree_.set_block(*node, table.blocks_[i]);
    nodes_[table.blocks_[i]] = node;
  }
}

void KvCacheManager::release(BlockTable& table) {
  for (auto it = table.blocks_.rbegin(); it != table.blocks_.rend(); ++it) {
    SPYRE_CHECK(refs_[*it] > 0, "block {} is not held", *it);
    if (--refs_[*it] > 0) continue;
    if (nodes_[*it] != nullptr) {
      push_cached(*it);
    } else {
      free_.push_back(*it);
    }
  }
  if (table.node_ != nullptr) tree_.unpin(*table.node_);
  table = BlockTable();
}

void KvCacheManager::check(std::span<const int32_t> held) const {
  std::vector<int32_t> refs(refs_.size(), 0);
  for (const int32_t block : held) {
    SPYRE_CHECK(block > 0 && block <= usable(), "block {} of {}", block, usable());
    ++refs[block];
  }
  SPYRE_CHECK(refs == refs_, "references differ");
  std::vector<int32_t> states(refs_.size(), 0);
  for (size_t block = 1; block < refs_.size(); ++block) states[block] += refs_[block] > 0;
  for (const int32_t block : free_) {
    SPYRE_CHECK(nodes_[block] == nullptr, "free block {} can be found", block);
    ++states[block];
  }
  int64_t cached = 0;
  for (int32_t block = next_[0]; block != 0; block = next_[block], ++cached) {
    SPYRE_CHECK(nodes_[block] != nullptr && nodes_[block]->block == block, "cached block {} cannot be found", block);
    SPYRE_CHECK(previous_[next_[block]] == block, "block {}", block);
    ++states[block];
  }
  SPYRE_CHECK(cached == num_cached_, "{} != {}", cached, num_cached_);
  SPYRE_CHECK(std::count(states.begin() + 1, states.end(), 1) == usable(), "a block is in no state, or in two");
}

}  // namespace spyre::engine
