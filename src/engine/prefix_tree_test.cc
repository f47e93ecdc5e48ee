#include "engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace spyre::engine {
namespace {

using Tokens = std::vector<int32_t>;
using Node = PrefixTree::Node;

TEST(PrefixTree, ANodeLivesWhileSomebodyUsesIt) {
  PrefixTree tree;
  Node* root = tree.root("");
  Node* a = tree.child(*root, Tokens{1, 2});
  tree.set_block(*a, 7);
  Node* b = tree.child(*a, Tokens{3, 4});
  tree.set_block(*b, 8);
  EXPECT_EQ(tree.size(), 3);
  tree.clear_block(*a);  // its child keeps it
  EXPECT_EQ(tree.find(*root, Tokens{1, 2}), a);
  tree.clear_block(*b);  // everything goes, the root too
  EXPECT_EQ(tree.size(), 0);
  EXPECT_EQ(tree.find_root(""), nullptr);
}

TEST(PrefixTree, APinKeepsANode) {
  PrefixTree tree;
  Node* node = tree.child(*tree.root("salt"), Tokens{1});
  tree.pin(*node);
  EXPECT_EQ(tree.find(*tree.find_root("salt"), Tokens{1}), node);
  tree.unpin(*node);
  EXPECT_EQ(tree.size(), 0);
}

// Every hash collides, or nearly: what is found is what was put there all the same.
TEST(PrefixTree, CollisionsNeverMixContents) {
  for (const uint64_t mask : {0u, 1u, 7u}) {
    PrefixTree tree(mask);
    std::mt19937 random(3);
    std::map<std::pair<std::string, Tokens>, Node*> known;  // by salt and path
    for (int i = 0; i < 300; ++i) {
      const std::string salt = random() % 2 == 0 ? "" : "s";
      Node* node = tree.root(salt);
      Tokens path;
      for (size_t depth = 1 + random() % 3; depth > 0; --depth) {
        const Tokens block{static_cast<int32_t>(random() % 3), static_cast<int32_t>(random() % 3)};
        path.insert(path.end(), block.begin(), block.end());
        node = tree.child(*node, block);
        tree.set_block(*node, i + 1);
        const auto [found, fresh] = known.try_emplace({salt, path}, node);
        ASSERT_EQ(found->second, node);
      }
    }
    std::map<Node*, int> seen;
    for (const auto& [key, node] : known) EXPECT_EQ(++seen[node], 1);
    EXPECT_EQ(tree.size(), static_cast<int64_t>(known.size()) + 2);
  }
}

}  // namespace
}  // namespace spyre::engine
