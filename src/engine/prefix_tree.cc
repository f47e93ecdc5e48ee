#include "engine/prefix_tree.h"

#include <algorithm>
#include <random>

#include "base/error.h"

namespace spyre::engine {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

// A 64-bit multiply whose halves are folded together: every bit of the input reaches every bit of the output.
uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd1b54a32d192ed03ull);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

PrefixTree::PrefixTree(uint64_t hash_mask) : mask_(hash_mask), seed_(random_seed()) {}

PrefixTree::~PrefixTree() {
  for (Node* node : nodes_) delete node;
}

uint64_t PrefixTree::chain(uint64_t hash, std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) hash = mix(hash, static_cast<uint32_t>(token));
  return hash & mask_;
}

bool PrefixTree::Equal::operator()(const Key& key, const Node* node) const {
  return node->parent == key.parent &&
         std::equal(node->tokens.begin(), node->tokens.end(), key.tokens.begin(), key.tokens.end());
}

PrefixTree::Node* PrefixTree::find_root(const std::string& salt) const {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? nullptr : found->second.get();
}

PrefixTree::Node* PrefixTree::find(const Node& parent, std::span<const int32_t> tokens) const {
  const auto found = nodes_.find(Key{&parent, tokens, chain(parent.hash, tokens)});
  return found == nodes_.end() ? nullptr : *found;
}

PrefixTree::Node* PrefixTree::root(const std::string& salt) {
  std::unique_ptr<Node>& root = roots_[salt];
  if (!root) {
    root = std::make_unique<Node>();
    root->hash = mix(seed_, std::hash<std::string>()(salt));
    root->salt = salt;
  }
  return root.get();
}

PrefixTree::Node* PrefixTree::child(Node& parent, std::span<const int32_t> tokens) {
  if (Node* found = find(parent, tokens)) return found;
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->hash = chain(parent.hash, tokens);
  node->tokens.assign(tokens.begin(), tokens.end());
  nodes_.insert(node.get());
  ++parent.uses;
  return node.release();
}

void PrefixTree::unpin(Node& node) {
  SPYRE_CHECK(node.uses > 0);
  --node.uses;
  drop_if_unused(&node);
}

void PrefixTree::clear_block(Node& node) {
  node.block = 0;
  drop_if_unused(&node);
}

void PrefixTree::drop_if_unused(Node* node) {
  while (node->uses == 0 && node->block == 0) {
    Node* parent = node->parent;
    if (parent == nullptr) {
      roots_.erase(roots_.find(node->salt));
      return;
    }
    nodes_.erase(node);
    delete node;
    --parent->uses;
    node = parent;
  }
}

}  // namespace spyre::engine
