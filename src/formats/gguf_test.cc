#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

using testing::data_path;
using testing::le;

class GgufTest : public ::testing::Test {
 protected:
  std::unique_ptr<GgufFile> file_ = GgufFile::open(data_path("tiny_llama.gguf"));
};

TEST_F(GgufTest, ReadsEveryKeyType) {
  EXPECT_EQ(file_->version(), 3u);
  EXPECT_EQ(file_->get_string("general.architecture"), "llama");
  EXPECT_EQ(file_->get_int("test.u8"), 200);
  EXPECT_EQ(file_->get_int("test.i8"), -100);
  EXPECT_EQ(file_->get_int("test.u16"), 60000);
  EXPECT_EQ(file_->get_int("test.i16"), -30000);
  EXPECT_EQ(file_->get_int("test.u32"), 4000000000);
  EXPECT_EQ(file_->get_int("test.i32"), -2000000000);
  EXPECT_EQ(file_->get_int("test.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(file_->get_float("test.u64"), 9223372036854775808.0);
  EXPECT_EQ(file_->get_float("test.f32"), 0.1f);
  EXPECT_EQ(file_->get_float("test.f64"), 0.1);
  EXPECT_EQ(file_->get_float("test.i8"), -100.0);
  EXPECT_EQ(file_->get_bool("test.bool"), true);
  EXPECT_EQ(file_->get_string("test.string"), "caf\xc3\xa9\nline");
  EXPECT_EQ(file_->get_int("no.such.key"), std::nullopt);
}

TEST_F(GgufTest, ReadsArraysInPlace) {
  const GgufArray ints = file_->get_array("test.ints").value();
  ASSERT_EQ(ints.size(), 3u);
  EXPECT_EQ(ints.int_at(1), -2);
  EXPECT_EQ(ints.float_at(2), 3.0);
  EXPECT_EQ(file_->get_array("test.floats")->float_at(1), -0.25);
  EXPECT_EQ(file_->get_array("test.bools")->int_at(1), 0);
  EXPECT_THROW(ints.string_at(0), Error);
  EXPECT_THROW(file_->get_array("test.floats")->int_at(0), Error);
  const GgufArray tokens = file_->tokenizer().tokens;
  const std::string_view token = tokens.string_at(5);  // and behind it the length of the next
  EXPECT_EQ(token.data() + token.size() + 8, tokens.string_at(6).data());
}

TEST_F(GgufTest, RefusesAValueOfAnotherKindByName) {
  const auto refused = [](auto&& function) {
    try {
      function();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused([&] { file_->get_string("test.u8"); }).find("'test.u8' is u8, not a string"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_int("test.f32"); }).find("'test.f32' is f32, not an integer"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_int("test.bool"); }).find("bool"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_float("test.string"); }).find("not a number"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_bool("test.u8"); }).find("not a bool"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_array("test.u8"); }).find("not an array"), std::string::npos);
  EXPECT_NE(refused([&] { file_->get_int("test.u64"); }).find("9223372036854775813 is past"), std::string::npos);
}

TEST_F(GgufTest, PublishesTheTokenizerKeys) {
  const GgufTokenizerKeys keys = file_->tokenizer();
  EXPECT_EQ(keys.model, "gpt2");
  EXPECT_EQ(keys.pre, "smollm");
  ASSERT_EQ(keys.tokens.size(), 40u);
  EXPECT_EQ(keys.tokens.string_at(0), "tok0");
  EXPECT_EQ(keys.tokens.string_at(37), "");
  EXPECT_EQ(keys.tokens.string_at(39), "<|end|>");
  EXPECT_EQ(keys.token_types.int_at(39), 3);
  EXPECT_EQ(keys.scores.float_at(3), -1.5);
  EXPECT_EQ(keys.merges.string_at(0), "t ok");
  EXPECT_EQ(keys.bos_id, 1);
  EXPECT_EQ(keys.eos_id, 39);
  EXPECT_EQ(keys.eot_id, 2);
  EXPECT_EQ(keys.padding_id, std::nullopt);
  EXPECT_EQ(keys.add_bos, false);
  EXPECT_EQ(keys.add_eos, std::nullopt);
  EXPECT_EQ(keys.add_space_prefix, false);
  EXPECT_TRUE(keys.chat_template.starts_with("{% for"));
}

TEST_F(GgufTest, FindsTensors) {
  const GgufTensor* tensor = file_->find_tensor("blk.1.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->rank, 2u);
  EXPECT_EQ(tensor->dims[0], 64u);
  EXPECT_EQ(tensor->dims[1], 32u);
  EXPECT_EQ(tensor->type, 3u);
  EXPECT_EQ(tensor->bytes, 64u / 32 * 32 * 20);
  EXPECT_EQ(tensor->offset % file_->alignment(), 0u);
  EXPECT_EQ(file_->find_tensor("blk.2.ffn_down.weight"), nullptr);
}

TEST(Gguf, ReadsVersion2) {
  const auto file = GgufFile::open(data_path("tiny_llama_v2.gguf"));
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->get_int("test.u32"), 7);
  ASSERT_EQ(file->tensors().size(), 1u);
  EXPECT_EQ(file->data(file->tensors()[0]).size(), 128u);
}

// Keys that take more than the first piece of a file that is read.
TEST(Gguf, ReadsALongHead) {
  constexpr uint64_t kStrings = 300000;
  const auto text = [](const std::string& s) { return le<uint64_t>(s.size()) + s; };
  std::string bytes = "GGUF" + le<uint32_t>(3) + le<uint64_t>(1) + le<uint64_t>(2);
  bytes += text("strings") + le<uint32_t>(9) + le<uint32_t>(8) + le<uint64_t>(kStrings);
  for (uint64_t i = 0; i < kStrings; ++i) bytes += text(std::to_string(i));
  bytes += text("behind") + le<uint32_t>(4) + le<uint32_t>(77);
  bytes += text("t") + le<uint32_t>(1) + le<uint64_t>(2) + le<uint32_t>(24) + le<uint64_t>(0);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  ASSERT_GT(bytes.size(), 3u << 20);
  bytes += "\x05\x06";
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "long_head.gguf";
  const auto opened = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return GgufFile::open(path);
  };
  const auto file = opened(bytes);
  const GgufArray strings = file->get_array("strings").value();
  ASSERT_EQ(strings.size(), kStrings);
  for (uint64_t i = 0; i < kStrings; ++i) ASSERT_EQ(strings.string_at(i), std::to_string(i));
  EXPECT_EQ(file->get_int("behind"), 77);
  EXPECT_EQ(file->data(file->tensors().at(0)), (std::vector{std::byte{5}, std::byte{6}}));
  for (const size_t cut : {bytes.size() - 1, bytes.size() - 60, size_t{2} << 20, (size_t{1} << 20) + 1})
    EXPECT_THROW(opened(bytes.substr(0, cut)), Error) << cut;
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace spyre::formats
