// What the cached KV blocks hold: a tree whose nodes are full blocks of tokens, each below the block before it, one
// root per salt. A path from a root is a prefix; nodes are found by a chained hash (of the parent's hash and the
// tokens) and then compared token by token, so that no collision can hand one user the content of another.
//
// A node lives while a block holds its content, a child hangs below it, or somebody pins it: a prefix whose first block
// was evicted is whole again when that block is computed anew. Plain bookkeeping, single-threaded; owned by the
// KvCacheManager, which knows what a block is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace spyre::engine {

class PrefixTree {
 public:
  struct Node {
    Node* parent = nullptr;  // none: a root
    uint64_t hash = 0;       // of the whole path
    std::vector<int32_t> tokens;
    std::string salt;   // of a root
    int32_t block = 0;  // which block holds it; 0 = none any more
    int64_t uses = 0;   // children and pins
  };

  // Tests mask the hash, to see collisions.
  explicit PrefixTree(uint64_t hash_mask = ~uint64_t{0});
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  Node* find_root(const std::string& salt) const;  // nullptr when nothing is cached under it
  Node* find(const Node& parent, std::span<const int32_t> tokens) const;
  // Found or made. The node must be pinned or get a block before anything else happens to the tree.
  Node* root(const std::string& salt);
  Node* child(Node& parent, std::span<const int32_t> tokens);

  void pin(Node& node) { ++node.uses; }
  void unpin(Node& node);
  void set_block(Node& node, int32_t block) { node.block = block; }
  void clear_block(Node& node);

  int64_t size() const { return static_cast<int64_t>(nodes_.size() + roots_.size()); }

 private:
  struct Key {
    const Node* parent;
    std::span<const int32_t> tokens;
    uint64_t hash;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Node* node) const { return node->hash; }
    size_t operator()(const Key& key) const { return key.hash; }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Node* a, const Node* b) const { return a == b; }
    bool operator()(const Key& key, const Node* node) const;
    bool operator()(const Node* node, const Key& key) const { return (*this)(key, node); }
  };

  uint64_t chain(uint64_t hash, std::span<const int32_t> tokens) const;
  void drop_if_unused(Node* node);

  const uint64_t mask_;
  const uint64_t seed_;  // of this process, so that nobody can prepare colliding prompts
  std::unordered_map<std::string, std::unique_ptr<Node>> roots_;
  std::unordered_set<Node*, Hash, Equal> nodes_;  // owned; roots are not among them
};

}  // namespace spyre::engine
