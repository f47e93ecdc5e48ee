#include "nn/module.h"

#include <gtest/gtest.h>

#include "nn/layers/attention.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

// A module with whatever children a test gives it.
class Stub : public Module {
 public:
  explicit Stub(std::string path) : Module("Stub", std::move(path)) {}
  Stub& with(std::unique_ptr<Module> module) {
    kept_.push_back(child(std::move(module)));
    return *this;
  }

 private:
  std::vector<std::unique_ptr<Module>> kept_;
};

std::unique_ptr<Module> attention(const std::string& path) {
  return std::make_unique<Attention>(Attention::Options{.path = path, .heads = 2, .kv_heads = 1, .head_size = 8});
}

std::unique_ptr<Module> block(const std::string& path) {
  auto stub = std::make_unique<Stub>(path);
  auto inner = std::make_unique<Stub>(path + ".inner");
  inner->with(attention(path + ".inner.attn"));
  stub->with(std::move(inner));
  return stub;
}

template <typename Make>
std::unique_ptr<ModuleList> list_of(const std::string& path, int count, Make&& make) {
  auto list = std::make_unique<ModuleList>(path);
  for (int i = 0; i < count; ++i) list->append(make(path + "." + std::to_string(i)));
  return list;
}

std::unique_ptr<Module> plain(const std::string& path) {
  return std::make_unique<Stub>(path);
}

TEST(FindBlockLists, FindsStacksThatHoldAttentionSomewhereInside) {
  Stub root("");
  root.with(list_of("layers", 3, block));
  const auto lists = find_block_lists(root);
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists[0]->path(), "layers");
  EXPECT_EQ(lists[0]->size(), 3u);
}

TEST(FindBlockLists, SkipsABareListOfAttentions) {
  Stub root("");
  root.with(list_of("attentions", 2, attention));
  EXPECT_TRUE(find_block_lists(root).empty());
}

TEST(FindBlockLists, IgnoresAStackWithoutAttention) {
  Stub root("");
  root.with(list_of("experts", 4, plain)).with(list_of("empty", 0, plain));
  EXPECT_TRUE(find_block_lists(root).empty());
}

TEST(FindBlockLists, FindsAHybridStack) {
  auto list = std::make_unique<ModuleList>("layers");
  list->append(plain("layers.0"));
  list->append(block("layers.1"));
  list->append(plain("layers.2"));
  Stub root("");
  root.with(std::move(list));
  ASSERT_EQ(find_block_lists(root).size(), 1u);
  EXPECT_EQ(find_blocks(root).size(), 3u) << "layers without attention are blocks of the stack too";
}

TEST(FindBlockLists, FindsTwoStacksInOrder) {
  Stub root("");
  root.with(list_of("encoder", 1, block)).with(list_of("decoder", 2, block));
  const auto lists = find_block_lists(root);
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[0]->path(), "encoder");
  EXPECT_EQ(lists[1]->path(), "decoder");
}

TEST(FindBlockLists, OfALlama) {
  const auto config = testing::parsed(testing::tiny_config(5));
  const auto model = testing::build(config);
  const auto lists = find_block_lists(*model);
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists[0]->size(), 5u);
  EXPECT_EQ((*lists[0])[4].path(), "model.layers.4");
}

TEST(HostTensor, TransposedSharesTheElements) {
  HostTensor tensor = HostTensor::allocate(DType::kF32, {2, 3});
  EXPECT_EQ(tensor.bytes(), 24u);
  const HostTensor turned = tensor.transposed();
  EXPECT_EQ(turned.shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(turned.strides, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(turned.data, tensor.data);
  EXPECT_EQ(turned.transposed().strides, (std::vector<int64_t>{3, 1}));
}

}  // namespace
}  // namespace spyre::nn
