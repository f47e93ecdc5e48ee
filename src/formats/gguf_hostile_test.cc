// GGUF files that lie. Each case starts from a small valid file and changes one thing.
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

using testing::expect_refused;
using testing::le;
using testing::read_hostile;

void open_gguf(std::span<const std::byte> bytes) {
  const auto file = GgufFile::from_bytes(bytes, "hostile.gguf");
  // What was accepted must also be readable.
  for (const GgufTensor& t : file->tensors()) {
    const auto data = file->data(t);
    volatile auto sink = data.empty() ? std::byte{} : data.front() | data.back();
    (void)sink;
  }
  const GgufTokenizerKeys keys = file->tokenizer();
  for (size_t i = 0; i < keys.tokens.size(); ++i) (void)keys.tokens.string_at(i);
}

std::string str(std::string_view text) {
  return le<uint64_t>(text.size()) + std::string(text);
}
std::string key(std::string_view name, uint32_t type, const std::string& value) {
  return str(name) + le<uint32_t>(type) + value;
}
std::string array(uint32_t type, uint64_t count, const std::string& elements) {
  return le<uint32_t>(type) + le<uint64_t>(count) + elements;
}

struct Tensor {
  std::string name = "t";
  std::vector<uint64_t> dims = {32, 2};
  uint32_t type = 0;
  uint64_t offset = 0;
  uint32_t rank = ~0u;  // as written; default: the number of dims
};

std::string info(const Tensor& t) {
  std::string out = str(t.name) + le<uint32_t>(t.rank == ~0u ? static_cast<uint32_t>(t.dims.size()) : t.rank);
  for (uint64_t d : t.dims) out += le<uint64_t>(d);
  return out + le<uint32_t>(t.type) + le<uint64_t>(t.offset);
}

// A file in parts: what is not set is right.
struct File {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> keys = {key("general.architecture", 8, str("llama"))};
  std::vector<Tensor> tensors = {Tensor{}};
  size_t data = 256;  // the default tensor takes all of it
  size_t align = 32;
  uint64_t key_count = ~0ull, tensor_count = ~0ull;

  std::string bytes() const {
    std::string out = magic + le(version) + le<uint64_t>(tensor_count == ~0ull ? tensors.size() : tensor_count) +
                      le<uint64_t>(key_count == ~0ull ? keys.size() : key_count);
    for (const auto& k : keys) out += k;
    for (const auto& t : tensors) out += info(t);
    out.resize((out.size() + align - 1) / align * align, '\0');
    return out + std::string(data, '\x01');
  }
};

struct Case {
  const char* name;
  std::function<void(File&)> change;
  const char* expected;
};

void one_key(File& f, const std::string& k) {
  f.keys = {k};
}
void one_tensor(File& f, Tensor t) {
  f.tensors = {std::move(t)};
}
constexpr uint64_t kHuge = ~0ull;

const Case kCases[] = {
    {"WrongMagic", [](File& f) { f.magic = "GGML"; }, "not a GGUF file"},
    {"SwappedMagic", [](File& f) { f.magic = "FUGG"; }, "not a GGUF file"},
    {"Version0", [](File& f) { f.version = 0; }, "GGUF version 0; versions 2 and 3"},
    {"Version1", [](File& f) { f.version = 1; }, "GGUF version 1"},
    {"Version4", [](File& f) { f.version = 4; }, "GGUF version 4; versions 2 and 3"},
    {"VersionHuge", [](File& f) { f.version = ~0u; }, "GGUF version 4294967295"},
    {"BigEndian3", [](File& f) { f.version = 0x03000000; }, "big-endian"},
    {"BigEndian2", [](File& f) { f.version = 0x02000000; }, "big-endian"},
    {"KeyCountHuge", [](File& f) { f.key_count = kHuge - 1; }, "18446744073709551614 keys"},
    {"KeyCountSigned", [](File& f) { f.key_count = 1ull << 63; }, "9223372036854775808 keys"},
    {"KeyCountPastFile", [](File& f) { f.key_count = 1000; }, "1000 keys in a file"},
    {"KeyCountOneMore", [](File& f) { f.key_count = 2; }, "hostile.gguf: "},
    {"TensorCountHuge", [](File& f) { f.tensor_count = kHuge - 1; }, "18446744073709551614 tensors"},
    {"TensorCountPastFile", [](File& f) { f.tensor_count = 500; }, "500 tensors in a file"},
    {"TensorCountOneMore", [](File& f) { f.tensor_count = 2; }, "hostile.gguf: "},
    {"TensorCountOverLimit", [](File& f) { f.tensor_count = 300000, f.data = 300000 * 40; }, "300000 tensors"},
    {"KeyCountOverLimit", [](File& f) { f.key_count = 70000, f.data = 70000 * 20; }, "70000 keys"},
    {"KeyNameEmpty", [](File& f) { one_key(f, key("", 4, le(1u))); }, "key 0 has an empty name"},
    {"KeyNameTooLong", [](File& f) { one_key(f, key(std::string(65536, 'k'), 4, le(1u))); }, "65536 bytes long"},
    {"KeyNameLengthHuge", [](File& f) { one_key(f, le(kHuge) + "abc"); }, "18446744073709551615 bytes long"},
    {"KeyNamePastEnd", [](File& f) { one_key(f, le<uint64_t>(60000) + "abc"); }, "key name needs 60000 bytes"},
    {"KeyTwice", [](File& f) { f.keys = {key("a", 4, le(1u)), key("a", 4, le(1u))}; }, "key 'a' stands twice"},
    {"KeyNameUnprintable", [](File& f) { f.keys = {key("a\n", 4, le(1u)), key("a\n", 4, le(1u))}; }, "key 'a\\x0a'"},
    {"ValueType13", [](File& f) { one_key(f, key("a", 13, le(1u))); }, "key 'a': value type 13 is unknown"},
    {"ValueTypeHuge", [](File& f) { one_key(f, key("a", ~0u, le(1u))); }, "value type 4294967295"},
    {"StringLengthHuge", [](File& f) { one_key(f, key("a", 8, le(kHuge))); }, "a needs 18446744073709551615 bytes"},
    {"StringLengthSigned", [](File& f) { one_key(f, key("a", 8, le(1ull << 63))); }, "a needs 9223372036854775808"},
    {"StringPastEnd", [](File& f) { one_key(f, key("a", 8, le<uint64_t>(4000) + "x")); }, "a needs 4000 bytes"},
    {"ArrayType99", [](File& f) { one_key(f, key("a", 9, array(99, 1, "x"))); }, "value type 99"},
    {"ArrayCountHuge", [](File& f) { one_key(f, key("a", 9, array(4, kHuge, "x"))); }, "18446744073709551615 x u32"},
    {"ArrayCountWraps", [](File& f) { one_key(f, key("a", 9, array(10, 1ull << 61, "x"))); },
     "2305843009213693952 x u64"},
    {"ArrayCountWrapsTo0", [](File& f) { one_key(f, key("a", 9, array(4, 1ull << 62, ""))); }, "x u32"},
    {"ArrayBytesPastEnd", [](File& f) { one_key(f, key("a", 9, array(0, 5000, "x"))); }, "5000 x u8"},
    {"ArrayStringsHuge", [](File& f) { one_key(f, key("a", 9, array(8, 1ull << 40, str("x")))); }, "x string"},
    {"ArrayStringPastEnd", [](File& f) { one_key(f, key("a", 9, array(8, 2, str("x") + le<uint64_t>(9999)))); },
     "a needs 9999 bytes"},
    {"ArrayStringLengthHuge", [](File& f) { one_key(f, key("a", 9, array(8, 1, le(kHuge)))); },
     "a needs 18446744073709551615 bytes"},
    {"ArrayOfArraysHuge", [](File& f) { one_key(f, key("a", 9, array(9, 1ull << 50, ""))); }, "x array"},
    {"ArrayOfArraysPastEnd", [](File& f) { one_key(f, key("a", 9, array(9, 1, array(4, 99999, "")))); }, "99999 x u32"},
    {"ArrayTooDeep",
     [](File& f) { one_key(f, key("a", 9, array(9, 1, array(9, 1, array(9, 1, array(9, 1, array(4, 1, le(1u)))))))); },
     "nested deeper than 4"},
    {"ArrayVeryDeep",
     [](File& f) {
       std::string deep;
       for (int i = 0; i < 50000; ++i) deep += le<uint32_t>(9) + le<uint64_t>(1);
       one_key(f, key("a", 9, deep));
     },
     "nested deeper than 4"},
    {"Alignment0", [](File& f) { f.keys = {key("general.alignment", 4, le(0u))}; }, "general.alignment 0"},
    {"Alignment24", [](File& f) { f.keys = {key("general.alignment", 4, le(24u))}; }, "general.alignment 24"},
    {"AlignmentHuge", [](File& f) { f.keys = {key("general.alignment", 4, le(1u << 31))}; }, "2147483648 is no power"},
    {"AlignmentU64", [](File& f) { f.keys = {key("general.alignment", 10, le<uint64_t>(32))}; }, "is u64, not u32"},
    {"AlignmentString", [](File& f) { f.keys = {key("general.alignment", 8, str("32"))}; }, "is string, not u32"},
    {"NameEmpty", [](File& f) { one_tensor(f, {.name = ""}); }, "tensor 0 has an empty name"},
    {"NameTooLong", [](File& f) { one_tensor(f, {.name = std::string(65, 'n')}); }, "65 bytes long; at most 64"},
    {"NameTwice", [](File& f) { f.tensors = {{.dims = {32}}, {.dims = {32}, .offset = 128}}; }, "'t' stands twice"},
    {"Rank0", [](File& f) { one_tensor(f, {.dims = {}}); }, "tensor 't': rank 0"},
    {"Rank5", [](File& f) { one_tensor(f, {.dims = {2, 2, 2, 2, 2}}); }, "tensor 't': rank 5"},
    {"RankHuge", [](File& f) { one_tensor(f, {.rank = 0xfffffffe}); }, "rank 4294967294"},
    {"Dim0", [](File& f) { one_tensor(f, {.dims = {32, 0}}); }, "tensor 't': dimension 1 is 0"},
    {"DimHuge", [](File& f) { one_tensor(f, {.dims = {kHuge}}); }, "dimension 0 of 18446744073709551615"},
    {"DimSigned", [](File& f) { one_tensor(f, {.dims = {1ull << 63}}); }, "more than 2^62 elements"},
    {"DimsWrap", [](File& f) { one_tensor(f, {.dims = {1ull << 32, 1ull << 32}}); }, "more than 2^62 elements"},
    {"DimsWrapTo64", [](File& f) { one_tensor(f, {.dims = {32, 1ull << 59, 2}}); }, "more than 2^62 elements"},
    {"BytesWrap", [](File& f) { one_tensor(f, {.dims = {1ull << 62}, .type = 27}); }, "more than 2^64 bytes"},
    {"BytesPastEnd", [](File& f) { one_tensor(f, {.dims = {65}}); }, "+ 260 bytes is past the end"},
    {"TypeGap", [](File& f) { one_tensor(f, {.type = 4}); }, "tensor 't' has the unknown type number 4; weights"},
    {"TypeUnknown", [](File& f) { one_tensor(f, {.type = 1000}); }, "unknown type number 1000"},
    {"TypeHuge", [](File& f) { one_tensor(f, {.type = ~0u}); },
     "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16"},
    {"BlockCut", [](File& f) { one_tensor(f, {.dims = {33}, .type = 8}); }, "rows of 33 are no multiple of the 32"},
    {"BlockCutK", [](File& f) { one_tensor(f, {.dims = {32}, .type = 12}); }, "256 of a Q4_K block"},
    {"OffsetOdd", [](File& f) { one_tensor(f, {.dims = {4}, .offset = 4}); },
     "offset 4 is no multiple of the alignment 32"},
    {"OffsetPastEnd", [](File& f) { one_tensor(f, {.dims = {4}, .offset = 256}); }, "offset 256 + 16 bytes is past"},
    {"OffsetWraps", [](File& f) { one_tensor(f, {.dims = {4}, .offset = kHuge - 31}); }, "past the end"},
    {"OffsetPlusBytesWraps", [](File& f) { one_tensor(f, {.dims = {1ull << 59}, .offset = kHuge - 31}); },
     "past the end"},
    {"OverlapSame", [](File& f) { f.tensors = {{.name = "x"}, {.name = "y"}}; }, "overlap"},
    {"OverlapPart", [](File& f) { f.tensors = {{.name = "y", .dims = {8}, .offset = 224}, {.name = "x"}}; },
     "tensors 'x' ["},
    {"OverlapInside", [](File& f) { f.tensors = {{.name = "x"}, {.name = "y", .dims = {8}, .offset = 64}}; }, "'y' ["},
    {"NoData", [](File& f) { f.data = 0; }, "+ 256 bytes is past the end"},
    {"OneByteShort", [](File& f) { f.data = 255; }, "past the end"},
    {"TokensNotStrings", [](File& f) { one_key(f, key("tokenizer.ggml.tokens", 9, array(4, 1, le(1u)))); },
     "'tokenizer.ggml.tokens' is an array of u32, not of strings"},
    {"TokensNoArray", [](File& f) { one_key(f, key("tokenizer.ggml.tokens", 4, le(1u))); }, "is u32, not an array"},
    {"TypesNotIntegers", [](File& f) { one_key(f, key("tokenizer.ggml.token_type", 9, array(8, 1, str("x")))); },
     "not of integers"},
    {"TypesNested", [](File& f) { one_key(f, key("tokenizer.ggml.token_type", 9, array(9, 1, array(4, 1, le(1u))))); },
     "not of integers"},
    {"ScoresNotFloats", [](File& f) { one_key(f, key("tokenizer.ggml.scores", 9, array(7, 1, "x"))); },
     "not of floats"},
    {"BosFloat", [](File& f) { one_key(f, key("tokenizer.ggml.bos_token_id", 6, le(1u))); }, "not an integer"},
    {"EosPastInt64", [](File& f) { one_key(f, key("tokenizer.ggml.eos_token_id", 10, le(kHuge))); }, "past 2^63 - 1"},
    {"TemplateNotString", [](File& f) { one_key(f, key("tokenizer.chat_template", 4, le(1u))); }, "not a string"},
};

class GgufHostile : public ::testing::TestWithParam<Case> {};

TEST_P(GgufHostile, IsRefused) {
  File file;
  GetParam().change(file);
  expect_refused(open_gguf, file.bytes(), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, GgufHostile, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GgufHostileBase, TheUnchangedFileIsRead) {
  EXPECT_EQ(read_hostile(open_gguf, File().bytes()), "");
}

TEST(GgufHostileBase, NestedArraysAreWalkedOver) {
  File file;
  file.keys = {key("a", 9, array(9, 2, array(8, 1, str("x")) + array(9, 1, array(4, 1, le(1u)))))};
  EXPECT_EQ(read_hostile(open_gguf, file.bytes()), "");
}

TEST(GgufHostileBase, EveryPrefixIsRefused) {
  const std::string file = File().bytes();
  for (size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(read_hostile(open_gguf, file.substr(0, n)), "") << n << " bytes were accepted";
}

TEST(GgufHostileBase, RandomDamageIsReadOrRefused) {
  const std::string whole = testing::slurp(testing::data_path("tiny_llama.gguf")).substr(0, 12000);
  File small;
  small.keys.push_back(key("tokenizer.ggml.tokens", 9, array(8, 3, str("a") + str("") + str("ccc"))));
  std::mt19937 random(1);
  for (int i = 0; i < 4000; ++i) {
    std::string file = i % 4 ? small.bytes() : whole;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const size_t at = random() % (i % 4 ? 200 : file.size());
      file[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    read_hostile(open_gguf, file);
  }
}

// The largest counts that fit the file cost no more than the promise.
TEST(GgufHostileBase, ManySmallThingsStayWithinTheBound) {
  File strings;
  strings.keys = {key("a", 9, array(8, 500000, std::string(500000 * 8, '\0')))};
  EXPECT_EQ(read_hostile(open_gguf, strings.bytes()), "");
  File keys;
  keys.keys.clear();
  for (int i = 0; i < 65536; ++i) keys.keys.push_back(key(std::to_string(i), 0, "x"));
  EXPECT_EQ(read_hostile(open_gguf, keys.bytes()), "");
  File arrays;
  arrays.keys.clear();
  for (int i = 0; i < 65536; ++i) arrays.keys.push_back(key(std::to_string(i), 9, array(8, 1, str(""))));
  EXPECT_EQ(read_hostile(open_gguf, arrays.bytes()), "");
  File tensors;
  tensors.tensors.clear();
  for (uint64_t i = 0; i < 200000; ++i)
    tensors.tensors.push_back({.name = std::to_string(i), .dims = {1}, .type = 24, .offset = i * 32});
  tensors.data = 200000 * 32;
  EXPECT_EQ(read_hostile(open_gguf, tensors.bytes()), "");
}

}  // namespace
}  // namespace spyre::formats
