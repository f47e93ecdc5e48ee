#include "formats/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/half.h"
#include "formats/gguf.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

namespace fs = std::filesystem;
using testing::data_path;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> read_as(const Checkpoint& checkpoint, const TensorInfo& tensor, DType dtype) {
  std::vector<T> out(static_cast<size_t>(tensor.elements()));
  checkpoint.read(tensor, dtype, std::as_writable_bytes(std::span(out)));
  return out;
}

template <typename T>
std::vector<T> read_rows_as(const Checkpoint& checkpoint, const TensorInfo& tensor, int64_t first, int64_t rows,
                            DType dtype) {
  std::vector<T> out(static_cast<size_t>(rows * tensor.row_elements()));
  checkpoint.read_rows(tensor, first, rows, dtype, std::as_writable_bytes(std::span(out)));
  return out;
}

template <typename T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b, const std::string& name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  if (a.empty()) return;  // memcmp takes no null pointers
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << name;
}

// A GGUF file and the folder that the reference packages made of it are the same checkpoint.
void expect_equal(const Checkpoint& gguf, const Checkpoint& folder) {
  ASSERT_EQ(gguf.tensors().size(), folder.tensors().size());
  for (const TensorInfo& tensor : gguf.tensors()) {
    const TensorInfo* twin = folder.find(tensor.name);
    ASSERT_NE(twin, nullptr) << tensor.name;
    ASSERT_EQ(tensor.shape, twin->shape) << tensor.name;
    if (twin->dtype == DType::kF32) {
      expect_same_bits(read_as<float>(gguf, tensor, DType::kF32), read_as<float>(folder, *twin, DType::kF32),
                       tensor.name);
    }
    // One rounding on either way: from blocks, or from the fp32 the blocks stand for.
    expect_same_bits(read_as<uint16_t>(gguf, tensor, DType::kF16), read_as<uint16_t>(folder, *twin, DType::kF16),
                     tensor.name);
    if (twin->dtype == DType::kF32) {
      expect_same_bits(read_as<uint16_t>(gguf, tensor, DType::kBF16), read_as<uint16_t>(folder, *twin, DType::kBF16),
                       tensor.name);
    }
  }
}

std::string refusal(const fs::path& model, ErrorCode code) {
  try {
    Checkpoint::open(model);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << model << " was opened";
  return "";
}

TEST(Checkpoint, AGgufFileIsTheFolderItCameFrom) {
  const auto gguf = Checkpoint::open(data_path("tiny_llama.gguf"));
  const auto folder = Checkpoint::open(data_path("tiny_llama"));
  EXPECT_TRUE(gguf->is_gguf());
  EXPECT_FALSE(folder->is_gguf());
  EXPECT_EQ(gguf->folder(), data_path("").substr(0, data_path("").size() - 1));
  EXPECT_EQ(folder->config().dtype, DType::kF32);
  const TensorInfo* query = gguf->find("model.layers.1.self_attn.q_proj.weight");
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(query->storage, "Q4_1");
  EXPECT_EQ(query->dtype, DType::kF32);
  EXPECT_EQ(query->bytes, 32u * 20);
  EXPECT_TRUE(query->quantised());
  EXPECT_FALSE(gguf->find("model.layers.1.self_attn.v_proj.weight")->quantised());  // F16
  EXPECT_FALSE(gguf->find("model.norm.weight")->quantised());
  for (const TensorInfo& tensor : folder->tensors()) EXPECT_FALSE(tensor.quantised()) << tensor.name;
  expect_equal(*gguf, *folder);
}

// Whatever the type is called: such weights are rounded to f16 by every platform.
TEST(Checkpoint, EveryBlockTypeIsQuantised) {
  for (const char* file : {"good-k-blocks.gguf", "good-low-bit-blocks.gguf"}) {
    const auto checkpoint = Checkpoint::open(std::string(SPYRE_TEST_DATA) + "/fuzz/gguf/" + file);
    for (const TensorInfo& tensor : checkpoint->tensors())
      EXPECT_EQ(tensor.quantised(), tensor.storage != "F32") << tensor.name << " " << tensor.storage;
  }
}

// Any range of rows is that part of the whole: also where rows are gathered, and where they cut blocks (vectors).
TEST(Checkpoint, RowsAreAPartOfTheWhole) {
  for (const char* model : {"tiny_llama.gguf", "tiny_llama"}) {
    const auto checkpoint = Checkpoint::open(data_path(model));
    for (const TensorInfo& tensor : checkpoint->tensors()) {
      const auto whole = read_as<uint16_t>(*checkpoint, tensor, DType::kBF16);
      const int64_t rows = tensor.rows(), width = tensor.row_elements();
      for (int64_t first : {int64_t{0}, int64_t{1}, rows / 2, rows - 1, rows})
        for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{5}, rows}) {
          if (first + count > rows) continue;
          const auto part = read_rows_as<uint16_t>(*checkpoint, tensor, first, count, DType::kBF16);
          expect_same_bits(
              part, std::vector<uint16_t>(whole.begin() + first * width, whole.begin() + (first + count) * width),
              tensor.name);
        }
    }
  }
}

TEST(Checkpoint, ReadsShardsAndEveryDtype) {
  const auto checkpoint = Checkpoint::open(data_path("sharded"));
  ASSERT_EQ(checkpoint->tensors().size(), 5u);
  EXPECT_EQ(checkpoint->config().dtype, DType::kF16);  // from the tensors: the configuration does not say
  const TensorInfo& f16 = *checkpoint->find("a.f16");
  EXPECT_EQ(f16.storage, "F16");
  const auto values = read_as<float>(*checkpoint, f16, DType::kF32);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i) - 12.0f);
  EXPECT_EQ(read_as<int64_t>(*checkpoint, *checkpoint->find("a.ids"), DType::kI64),
            (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(read_as<uint8_t>(*checkpoint, *checkpoint->find("b.flags"), DType::kBool), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_TRUE(read_as<float>(*checkpoint, *checkpoint->find("b.none"), DType::kF32).empty());

  const TensorInfo& f64 = *checkpoint->find("b.f64");
  const auto doubles = read_as<double>(*checkpoint, f64, DType::kF64);
  EXPECT_EQ(doubles[0], 0.1);
  EXPECT_EQ(read_as<float>(*checkpoint, f64, DType::kF32)[0], 0.1f);
  // 1 + 2^-11 is halfway between two halves and 2^-40 more is above it: rounding twice, through fp32, would lose that.
  const auto halves = read_as<uint16_t>(*checkpoint, f64, DType::kF16);
  EXPECT_EQ(f16_to_f32(halves[1]), 1.0f + 1.0f / 1024);
  EXPECT_EQ(f16_to_f32(halves[2]), -3.0f);
  EXPECT_EQ(f16_to_f32(halves[3]), 65504.0f);
}

TEST(Checkpoint, RefusesToReadAsAnotherKind) {
  const auto checkpoint = Checkpoint::open(data_path("sharded"));
  std::vector<std::byte> out(20);
  try {
    checkpoint->read(*checkpoint->find("a.ids"), DType::kF32, out);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tensor 'a.ids' is I64: it cannot be read as f32");
  }
  out.resize(40);
  EXPECT_THROW(checkpoint->read(*checkpoint->find("a.f16"), DType::kI8, std::span(out).first(24)), Error);
  const auto gguf = Checkpoint::open(data_path("tiny_llama.gguf"));
  const TensorInfo& embedding = *gguf->find("model.embed_tokens.weight");
  std::vector<std::byte> large(static_cast<size_t>(embedding.elements()) * 8);
  EXPECT_THROW(gguf->read(embedding, DType::kF64, large), Error);
}

TEST(Checkpoint, ConstReadsRunOnManyThreads) {
  const auto checkpoint = Checkpoint::open(data_path("tiny_llama.gguf"));
  std::vector<std::vector<uint16_t>> expected;
  for (const TensorInfo& t : checkpoint->tensors()) expected.push_back(read_as<uint16_t>(*checkpoint, t, DType::kF16));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      for (int round = 0; round < 10; ++round)
        for (size_t i = 0; i < expected.size(); ++i)
          wrong[id] += read_as<uint16_t>(*checkpoint, checkpoint->tensors()[i], DType::kF16) != expected[i];
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// A scratch copy of a fixture, to break.
class BrokenCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "spyre-checkpoint-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  void copy(const std::string& fixture) {
    fs::copy(data_path(fixture), fs::is_directory(data_path(fixture)) ? root_ : root_ / "model.gguf",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) { return testing::slurp((root_ / name).string()); }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  fs::path root_;
};

TEST_F(BrokenCheckpoint, NamesTheMissingFile) {
  EXPECT_THAT(refusal(root_ / "nope", ErrorCode::kNotFound), HasSubstr("models are not downloaded"));
  EXPECT_THAT(refusal(root_, ErrorCode::kNotFound), HasSubstr("has no config.json"));
  write("config.json", testing::slurp(data_path("tiny_llama/config.json")));
  EXPECT_THAT(refusal(root_, ErrorCode::kNotFound), HasSubstr("neither model.safetensors nor"));
  write("pytorch_model.bin", "x");
  EXPECT_THAT(refusal(root_, ErrorCode::kNotFound), HasSubstr("pytorch_model.bin is not read"));
  write("text", "hello");
  EXPECT_THAT(refusal(root_ / "text", ErrorCode::kCorruptData), HasSubstr("not a GGUF file"));
}

TEST_F(BrokenCheckpoint, SaysWhyANameCannotBeFollowed) {
  copy("tiny_llama");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    fs::remove(root_ / name);
    fs::create_symlink(name, root_ / name);  // a ring of one
    try {
      Checkpoint::open(root_);
      ADD_FAILURE() << name;
    } catch (const Error& error) {  // and nothing from std::filesystem
      EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr(name), HasSubstr("symbolic links"))) << name;
    }
    fs::remove(root_ / name);
    fs::copy(data_path("tiny_llama") + ("/" + std::string(name)), root_ / name);
  }
}

TEST_F(BrokenCheckpoint, AFolderMayHoldOneGgufFile) {
  copy("tiny_llama.gguf");
  EXPECT_TRUE(Checkpoint::open(root_)->is_gguf());
  fs::copy(root_ / "model.gguf", root_ / "other.gguf");
  EXPECT_THAT(refusal(root_, ErrorCode::kInvalidArgument), HasSubstr("2 .gguf files"));
}

TEST_F(BrokenCheckpoint, ShardsStayInTheFolder) {
  copy("sharded");
  const std::string index = read("model.safetensors.index.json"), shard = "model-00002-of-00002.safetensors";
  write("model.safetensors.index.json", replaced(index, shard, "../" + shard));
  EXPECT_THAT(refusal(root_, ErrorCode::kCorruptData), HasSubstr("it leaves the folder"));
  write("model.safetensors.index.json", replaced(index, shard, "/etc/passwd"));
  EXPECT_THAT(refusal(root_, ErrorCode::kCorruptData), HasSubstr("it is absolute"));
  write("model.safetensors.index.json", replaced(index, shard, "gone.safetensors"));
  EXPECT_THAT(refusal(root_, ErrorCode::kNotFound), HasSubstr("gone.safetensors"));
  write("model.safetensors.index.json", replaced(index, "b.f64", "b.f63"));
  EXPECT_THAT(refusal(root_, ErrorCode::kCorruptData), HasSubstr("tensor 'b.f63' is not in"));
  write("model.safetensors.index.json", index);
  fs::remove(root_ / shard);
  fs::create_symlink(data_path("sharded/" + shard), root_ / shard);
  EXPECT_THAT(refusal(root_, ErrorCode::kCorruptData), HasSubstr("outside the folder"));
}

// Another process cuts a file while it is open: what is left of it can be read, what is gone is an error of that read.
TEST_F(BrokenCheckpoint, AFileThatIsCutWhileItIsOpenIsAnError) {
  for (const char* fixture : {"tiny_llama", "tiny_llama.gguf"}) {
    copy(fixture);
    const std::string file = fs::is_directory(data_path(fixture)) ? "model.safetensors" : "model.gguf";
    const auto checkpoint = Checkpoint::open(file == "model.gguf" ? root_ / file : root_);
    std::vector<std::vector<uint16_t>> before;
    for (const TensorInfo& t : checkpoint->tensors()) before.push_back(read_as<uint16_t>(*checkpoint, t, DType::kF16));
    fs::resize_file(root_ / file, fs::file_size(root_ / file) / 2);
    int read = 0, missed = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const TensorInfo& tensor = checkpoint->tensors()[i];
      try {
        EXPECT_EQ(read_as<uint16_t>(*checkpoint, tensor, DType::kF16), before[i]) << tensor.name;
        ++read;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
        EXPECT_THAT(error.what(), HasSubstr("tensor '" + tensor.name + "': "));
        testing::expect_fit_to_show(error.what(), file + "' has become shorter while it was read");
        ++missed;
      }
    }
    EXPECT_GT(read, 0) << fixture;
    EXPECT_GT(missed, 0) << fixture;
    if (checkpoint->gguf() != nullptr) {
      EXPECT_EQ(checkpoint->gguf()->get_string("general.architecture"), "llama");
    }
    fs::remove_all(root_);
    fs::create_directory(root_);
  }
}

TEST_F(BrokenCheckpoint, GgufTensorsMustBelongToTheModel) {
  copy("tiny_llama.gguf");
  const std::string good = read("model.gguf");
  const auto with = [&](const std::string& from, const std::string& to) {
    write("model.gguf", replaced(good, from, to));
    return root_ / "model.gguf";
  };
  EXPECT_THAT(refusal(with("blk.1.ffn_up", "blk.1.ffn_xx"), ErrorCode::kUnsupported),
              HasSubstr("'blk.1.ffn_xx.weight'"));
  EXPECT_THAT(refusal(with("blk.1.ffn_up", "blk.2.ffn_up"), ErrorCode::kUnsupported),
              HasSubstr("'blk.2.ffn_up.weight'"));
  EXPECT_THAT(refusal(with("blk.1.ffn_norm", "blk.01.ffn_nor"), ErrorCode::kUnsupported), HasSubstr("'blk.01.ffn_nor"));
  // The architecture's value is the first string "llama" behind its key; every key then has another prefix.
  EXPECT_THAT(refusal(with(std::string("general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama", 37),
                           std::string("general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0bloom", 37)),
                      ErrorCode::kUnsupported),
              HasSubstr("general.architecture 'bloom' is not supported; GGUF models are read for 'llama', 'qwen2', "
                        "'qwen3', 'granite'"));
  // F32 (0) of the last norm becomes I32 (26): a known type, and no weight.
  const size_t type = good.find("output_norm.weight") + 18 + 4 + 8;
  std::string other = good;
  other[type] = 26;
  write("model.gguf", other);
  EXPECT_THAT(refusal(root_ / "model.gguf", ErrorCode::kUnsupported),
              HasSubstr("tensor 'output_norm.weight' has type I32 (26); weights are read from F32, F16, Q4_0"));
}

TEST_F(BrokenCheckpoint, GgufKeysThatChangeTheMathsAreRefused) {
  copy("tiny_llama.gguf");
  const std::string good = read("model.gguf");
  // The value behind a key: its type (4 bytes), then the number.
  const auto with = [&](const std::string& key, uint32_t value) {
    std::string file = good;
    const size_t at = file.find(key) + key.size() + 4;
    EXPECT_LT(at, file.size());
    std::memcpy(file.data() + at, &value, 4);
    write("model.gguf", file);
    return root_ / "model.gguf";
  };
  EXPECT_THAT(refusal(with("llama.rope.dimension_count", 4), ErrorCode::kUnsupported),
              HasSubstr("'llama.rope.dimension_count' = 4 is not supported"));
  EXPECT_THAT(refusal(with("llama.attention.value_length", 16), ErrorCode::kUnsupported),
              HasSubstr("value_length' = 16"));
  // Another key in the place of one.
  const auto renamed = [&](const std::string& from, const std::string& to, uint32_t value) {
    std::string file = good;
    const size_t at = file.find(from);
    EXPECT_LT(at, file.size());
    const uint64_t length = to.size();
    const uint32_t type = 4;  // UINT32
    std::string entry(reinterpret_cast<const char*>(&length), 8);
    entry += to;
    entry.append(reinterpret_cast<const char*>(&type), 4).append(reinterpret_cast<const char*>(&value), 4);
    file.replace(at - 8, 8 + from.size() + 8, entry);
    write("model.gguf", file + std::string(64, '\0'));  // the data may start later
    return root_ / "model.gguf";
  };
  EXPECT_THAT(refusal(renamed("llama.attention.value_length", "split.count", 3), ErrorCode::kUnsupported),
              HasSubstr("one of 3 parts"));
  EXPECT_THAT(
      refusal(renamed("llama.attention.value_length", "llama.rope.scaling.attn_factor", 2), ErrorCode::kUnsupported),
      HasSubstr("'llama.rope.scaling.attn_factor' = 2 is not supported"));
  EXPECT_THAT(refusal(with("llama.attention.head_count", 5), ErrorCode::kCorruptData),
              HasSubstr("num_attention_heads 5"));
  EXPECT_THAT(refusal(with("llama.attention.head_count", 8), ErrorCode::kCorruptData),
              HasSubstr("has 32 rows; 8 heads of 8 (an even number) are expected"));
  EXPECT_THAT(refusal(with("llama.block_count", 1), ErrorCode::kUnsupported), HasSubstr("a 'llama' model of 1 layers"));
  EXPECT_THAT(refusal(with("llama.block_count", 0), ErrorCode::kCorruptData), HasSubstr("num_hidden_layers is 0"));
  EXPECT_THAT(refusal(with("llama.attention.layer_norm_rms_epsilon", 0x7fc00000), ErrorCode::kCorruptData),
              HasSubstr("nan"));
}

// The real SmolLM2: SPYRE_TEST_MODEL (a .gguf file), or what `./run model` fetched.
std::string real_model() {
  const char* named = std::getenv("SPYRE_TEST_MODEL");
  const std::string path = named ? named : SPYRE_TEST_DATA "/../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
  return fs::path(path).extension() == ".gguf" && fs::exists(path) ? path : "";
}

// All 272 tensors as fp16, folded to one number; the number comes from numpy over the folder that the reference
// converter made with the package `gguf` (sum of word i times i mod 65521 plus 1, tensors by name, times 31 in
// between). SPYRE_TEST_MODEL_HF names such a folder for a comparison tensor by tensor.
TEST(CheckpointRealModel, EqualsTheConvertersFolder) {
  const std::string model = real_model();
  if (model.empty()) GTEST_SKIP() << "no real model: run `./run model` or set SPYRE_TEST_MODEL";
  const auto gguf = Checkpoint::open(model);
  EXPECT_EQ(gguf->config().hidden_size, 576);
  EXPECT_EQ(gguf->config().head_dim, 64);
  EXPECT_EQ(gguf->config().vocab_size, 49152);
  EXPECT_EQ(gguf->config().rope.theta, 100000.0);
  EXPECT_EQ(gguf->config().rms_norm_eps, 1e-5);
  EXPECT_TRUE(gguf->config().tie_word_embeddings);
  EXPECT_EQ(gguf->tensors().size(), 272u);
  EXPECT_EQ(gguf->gguf()->tokenizer().tokens.size(), 49152u);
  EXPECT_EQ(gguf->gguf()->tokenizer().merges.size(), 48900u);
  const char* folder = std::getenv("SPYRE_TEST_MODEL_HF");
  if (folder) return expect_equal(*gguf, *Checkpoint::open(folder));
  uint64_t fold = 0;
  for (const TensorInfo& tensor : gguf->tensors()) {
    const auto words = read_as<uint16_t>(*gguf, tensor, DType::kF16);
    uint64_t sum = 0;
    for (size_t i = 0; i < words.size(); ++i) sum += words[i] * (i % 65521 + 1);
    fold = fold * 31 + sum;
  }
  EXPECT_EQ(fold, 0x15b38915b491c391u);
}

}  // namespace
}  // namespace spyre::formats
