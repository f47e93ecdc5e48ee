// safetensors files and indices that lie.
#include <gtest/gtest.h>

#include <random>

#include "formats/hostile_test_util.h"
#include "formats/safetensors.h"

namespace spyre::formats {
namespace {

using testing::expect_refused;
using testing::le;
using testing::read_hostile;

void open_file(std::span<const std::byte> bytes) {
  const auto file = SafetensorsFile::from_bytes(bytes, "hostile.safetensors");
  for (const SafetensorsTensor& t : file->tensors()) {  // what was accepted must also be readable
    const auto data = file->data(t);
    volatile auto sink = data.empty() ? std::byte{} : data.front() | data.back();
    (void)sink;
  }
}

void open_index(std::span<const std::byte> bytes) {
  parse_shard_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "hostile.index.json");
}

std::string file_of(const std::string& header, size_t data) {
  return le<uint64_t>(header.size()) + header + std::string(data, '\x01');
}

// One tensor of 8 bytes with the given fields.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

struct Case {
  const char* name;
  std::string header;
  size_t data;
  const char* expected;
};

std::string nested(int depth) {
  return std::string(depth, '[');
}

const Case kCases[] = {
    {"HeaderEmpty", "", 8, "does not begin with '{'"},
    {"HeaderArray", "[]", 0, "does not begin with '{'"},
    {"HeaderSpaceFirst", " {}", 0, "does not begin with '{'"},
    {"HeaderBom", "\xef\xbb\xbf{}", 0, "does not begin with '{'"},
    {"JsonCut", R"({"t":{"dtype":"F32")", 8, "broken JSON at byte"},
    {"JsonTrailing", "{}x", 0, "broken JSON"},
    {"JsonTwoObjects", "{}{}", 0, "broken JSON"},
    {"JsonNul", std::string("{}\0garbage", 10), 0, "NUL at byte 2"},
    {"JsonComment", "{/*x*/}", 0, "broken JSON"},
    {"JsonTrailingComma", R"({"t":1,})", 0, "'t' is the number 1"},
    {"JsonBadUtf8", "{\"\xff\":1}", 0, "broken JSON"},
    {"JsonControlCharacter", "{\"a\n\":1}", 0, "broken JSON"},
    {"JsonLoneSurrogate", R"({"\ud800":1})", 0, "broken JSON"},
    {"JsonNumberTooLarge", tensor(R"("F32")", "[1e999]", "[0,8]"), 8, "broken JSON"},
    {"TensorNumber", R"({"t":5})", 0, "tensor 't' is the number 5, not an object"},
    {"TensorString", R"({"t":"x"})", 0, "tensor 't' is a string"},
    {"TensorArray", R"({"t":[]})", 0, "tensor 't' is an array"},
    {"TensorNull", R"({"t":null})", 0, "tensor 't' is null"},
    {"TensorTrue", R"({"t":true})", 0, "tensor 't' is true"},
    {"TensorFloat", R"({"t":1.5})", 0, "tensor 't' is the number 1.5"},
    {"TensorEmpty", R"({"t":{}})", 0, "tensor 't' has no dtype"},
    {"NoShape", R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", 8, "tensor 't' has no shape"},
    {"NoOffsets", R"({"t":{"dtype":"F32","shape":[2]}})", 8, "data_offsets has 0 numbers"},
    {"UnknownField", R"({"t":{"dtype":"F32","color":1}})", 8, "tensor 't': unknown field 'color'"},
    {"DtypeTwice", R"({"t":{"dtype":"F32","dtype":"F16"}})", 8, "field 'dtype' stands twice"},
    {"ShapeTwice", R"({"t":{"shape":[1],"shape":[1]}})", 8, "field 'shape' stands twice"},
    {"OffsetsTwice", R"({"t":{"data_offsets":[0,8],"data_offsets":[0,8]}})", 8, "field 'data_offsets' stands twice"},
    {"DtypeNumber", tensor("5", "[2]", "[0,8]"), 8, "dtype cannot be the number 5"},
    {"DtypeArray", tensor("[]", "[2]", "[0,8]"), 8, "dtype cannot be an array"},
    {"DtypeObject", tensor("{}", "[2]", "[0,8]"), 8, "dtype cannot be an object"},
    {"DtypeUnknown", tensor(R"("Q9")", "[2]", "[0,8]"), 8, "tensor 't' has dtype 'Q9'; read are F64, F32"},
    {"DtypeF8", tensor(R"("F8_E4M3")", "[8]", "[0,8]"), 8, "dtype 'F8_E4M3'"},
    {"DtypeLowerCase", tensor(R"("f32")", "[2]", "[0,8]"), 8, "dtype 'f32'"},
    {"DtypeUnprintable", tensor(R"("F\u000a")", "[2]", "[0,8]"), 8, "dtype 'F\\x0a'"},
    {"ShapeNumber", tensor(R"("F32")", "2", "[0,8]"), 8, "shape cannot be the number 2"},
    {"ShapeString", tensor(R"("F32")", R"("2")", "[0,8]"), 8, "shape cannot be a string"},
    {"ShapeNested", tensor(R"("F32")", "[[2]]", "[0,8]"), 8, "shape cannot be an array"},
    {"ShapeObject", tensor(R"("F32")", "[{}]", "[0,8]"), 8, "shape cannot be an object"},
    {"ShapeVeryDeep", tensor(R"("F32")", nested(100000), "[0,8]"), 8, "shape cannot be an array"},
    {"HeaderVeryDeep", R"({"t":)" + nested(100000), 8, "tensor 't' is an array"},
    {"ShapeNegative", tensor(R"("F32")", "[-2]", "[0,8]"), 8, "shape cannot be the negative number -2"},
    {"ShapeFraction", tensor(R"("F32")", "[2.0]", "[0,8]"), 8, "shape cannot be the number 2.0"},
    {"ShapeNull", tensor(R"("F32")", "[null]", "[0,8]"), 8, "shape cannot be null"},
    {"ShapeTooLargeForInt64", tensor(R"("F32")", "[9223372036854775808]", "[0,8]"), 8, "is past 2^63 - 1"},
    {"ShapeTooLargeForUint64", tensor(R"("F32")", "[18446744073709551616]", "[0,8]"), 8, "shape cannot be the number"},
    {"ShapeWraps", tensor(R"("F32")", "[4294967296,4294967296]", "[0,8]"), 8, "makes more than 2^64 bytes"},
    {"ShapeWrapsByDtype", tensor(R"("F64")", "[2305843009213693953]", "[0,8]"), 8, "makes more than 2^64 bytes"},
    {"ShapeRank9", tensor(R"("F32")", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "more than 8 dimensions"},
    {"ShapeTooSmall", tensor(R"("F32")", "[1]", "[0,8]"), 8, "shape [1] of f32 takes 4 bytes, data_offsets give 8"},
    {"ShapeTooLarge", tensor(R"("F32")", "[3]", "[0,8]"), 8, "shape [3] of f32 takes 12 bytes, data_offsets give 8"},
    {"ShapeEmptyWithBytes", tensor(R"("F32")", "[0,4294967296]", "[0,8]"), 8, "takes 0 bytes, data_offsets give 8"},
    {"ScalarWithBytes", tensor(R"("F32")", "[]", "[0,8]"), 8, "shape [] of f32 takes 4 bytes"},
    {"OffsetsNumber", tensor(R"("F32")", "[2]", "0"), 8, "data_offsets cannot be the number 0"},
    {"OffsetsOne", tensor(R"("F32")", "[2]", "[8]"), 8, "data_offsets has 1 numbers, not 2"},
    {"OffsetsThree", tensor(R"("F32")", "[2]", "[0,8,8]"), 8, "more than 2 numbers"},
    {"OffsetsNegative", tensor(R"("F32")", "[2]", "[-8,0]"), 8, "data_offsets cannot be the negative number -8"},
    {"OffsetsFloat", tensor(R"("F32")", "[2]", "[0,8.0]"), 8, "data_offsets cannot be the number 8.0"},
    {"OffsetsString", tensor(R"("F32")", "[2]", R"(["0","8"])"), 8, "data_offsets cannot be a string"},
    {"OffsetsBackwards", tensor(R"("F32")", "[2]", "[8,0]"), 8, "data_offsets [8, 0] run backwards"},
    {"OffsetsPastEnd", tensor(R"("F32")", "[4]", "[0,16]"), 8, "offset 0 + 16 bytes is past the end"},
    {"OffsetsBehindEnd", tensor(R"("F32")", "[2]", "[8,16]"), 8, "offset 8 + 8 bytes is past the end"},
    {"OffsetsHuge", tensor(R"("F32")", "[2]", "[18446744073709551600,18446744073709551608]"), 8, "past the end"},
    {"OffsetsSpanHuge", tensor(R"("F32")", "[2]", "[0,18446744073709551615]"), 8, "past the end"},
    {"OffsetsMoreThanUint64", tensor(R"("F32")", "[2]", "[0,18446744073709551616]"), 8, "cannot be the number"},
    {"HoleAtStart", tensor(R"("F32")", "[2]", "[4,12]"), 12, "a hole of 4 bytes"},
    {"HoleBetween",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5,
     "a hole of 1 bytes at"},
    {"HoleAtEnd", tensor(R"("F32")", "[2]", "[0,8]"), 9, "1 bytes from"},
    {"DataWithoutTensors", "{}", 4, "4 bytes from"},
    {"OverlapPart",
     R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4,
     "tensors 'a' and 'b' overlap"},
    {"OverlapSame",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
     "overlap"},
    {"OverlapInside",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 4,
     "overlap"},
    {"EmptyInsideAnother",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4,
     "overlap"},
    {"NameTwice",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4,
     "tensor 'a' stands twice"},
    {"NameTooLong", R"({")" + std::string(1025, 'n') + R"(":{}})", 0, "the name is 1025 bytes long"},
    {"MetadataString", R"({"__metadata__":"x"})", 0, "tensor '__metadata__' is a string, not an object"},
    {"MetadataNumberInside", R"({"__metadata__":{"a":1}})", 0, "'__metadata__' holds the number 1; only strings"},
    {"MetadataObjectInside", R"({"__metadata__":{"a":{}}})", 0, "'__metadata__' holds an object"},
    {"MetadataArrayInside", R"({"__metadata__":{"a":[]}})", 0, "'__metadata__' holds an array"},
    {"MetadataNullInside", R"({"__metadata__":{"a":null}})", 0, "'__metadata__' holds null"},
    {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' stands twice"},
};

class SafetensorsHostile : public ::testing::TestWithParam<Case> {};

TEST_P(SafetensorsHostile, IsRefused) {
  expect_refused(open_file, file_of(GetParam().header, GetParam().data), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, SafetensorsHostile, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

const std::string kGood = file_of(
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"I64","shape":[0],"data_offsets":[4,4]}}  )",
    12);

TEST(SafetensorsHostileBase, AGoodFileIsRead) {
  EXPECT_EQ(read_hostile(open_file, kGood), "");
  EXPECT_EQ(read_hostile(open_file, file_of("{}", 0)), "");
}

TEST(SafetensorsHostileBase, HeaderLengthsAreChecked) {
  for (uint64_t length :
       {uint64_t{3}, uint64_t{1000}, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}})
    expect_refused(open_file, le(length) + "{}", fmt::format("a header of {} bytes", length));
  expect_refused(open_file, le<uint64_t>((100 << 20) + 1) + std::string((100 << 20) + 10, ' '), "104857601 bytes");
}

TEST(SafetensorsHostileBase, EveryPrefixIsRefused) {
  for (size_t n = 0; n < kGood.size(); ++n)
    EXPECT_NE(read_hostile(open_file, kGood.substr(0, n)), "") << n << " bytes were accepted";
}

TEST(SafetensorsHostileBase, RandomDamageIsReadOrRefused) {
  std::mt19937 random(2);
  static constexpr char kTokens[] = "{}[]\",:0123456789-.eEtfn\\ \0\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string file = kGood;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n)
      file[random() % file.size()] = kTokens[random() % (sizeof(kTokens) - 1)];
    read_hostile(open_file, file);
  }
}

TEST(SafetensorsHostileBase, ManySmallTensorsStayWithinTheBound) {
  std::string header = "{";
  for (int i = 0; i < 262144; ++i)
    header += (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(read_hostile(open_file, file_of(header + "}", 0)), "");
  expect_refused(open_file, file_of(header + R"(,"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0),
                 "more than 262144 tensors");
}

struct IndexCase {
  const char* name;
  std::string text;
  const char* expected;
};

const IndexCase kIndexCases[] = {
    {"Empty", "", "broken JSON"},
    {"Array", "[]", "the index is an array, not an object"},
    {"Number", "5", "the index is a number"},
    {"NoMap", R"({"metadata":{}})", "there is no 'weight_map'"},
    {"MapArray", R"({"weight_map":[]})", "'weight_map' is an array"},
    {"MapString", R"({"weight_map":"x"})", "'weight_map' is a string"},
    {"MapNull", R"({"weight_map":null})", "'weight_map' is null"},
    {"MapTwice", R"({"weight_map":{},"weight_map":{}})", "'weight_map' stands twice"},
    {"FileNumber", R"({"weight_map":{"a":1}})", "tensor 'a': its file is a number"},
    {"FileNull", R"({"weight_map":{"a":null}})", "tensor 'a': its file is null"},
    {"FileObject", R"({"weight_map":{"a":{}}})", "tensor 'a': its file is an object"},
    {"FileArray", R"({"weight_map":{"a":["x"]}})", "tensor 'a': its file is an array"},
    {"TensorTwice", R"({"weight_map":{"a":"x","a":"y"}})", "tensor 'a' stands twice"},
    {"NameTooLong", R"({"weight_map":{")" + std::string(2000, 'n') + R"(":"x"}})", "the name is 2000 bytes long"},
    {"FileTooLong", R"({"weight_map":{"a":")" + std::string(2000, 'n') + R"("}})", "the file name is 2000 bytes long"},
    {"TooDeep", R"({"metadata":)" + nested(100000), "nested deeper than 64"},
    {"Cut", R"({"weight_map":{"a":"x")", "broken JSON"},
    {"Nul", std::string("{\"weight_map\":{}}\0x", 19), "NUL at byte"},
};

class ShardIndexHostile : public ::testing::TestWithParam<IndexCase> {};

TEST_P(ShardIndexHostile, IsRefused) {
  expect_refused(open_index, GetParam().text, GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, ShardIndexHostile, ::testing::ValuesIn(kIndexCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShardIndexHostileBase, TooManyFilesAreRefused) {
  std::string text = R"({"weight_map":{)";
  for (int i = 0; i < 20000; ++i) text += fmt::format(R"({}"{}":"{}")", i ? "," : "", i, i);
  expect_refused(open_index, text + "}}", "more than 16384 files");
}

}  // namespace
}  // namespace spyre::formats
