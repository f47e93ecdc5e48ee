#include "formats/foreign.h"

#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "formats/hostile_test_util.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace spyre::formats {
namespace {

using testing::bytes_of;
using testing::read_hostile;

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

// What each reader of a model's files says of |file|.
std::vector<std::string> refusals(const std::string& file) {
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  return {
      read_hostile([](auto bytes) { SafetensorsFile::from_bytes(bytes, "hostile.safetensors"); }, file),
      read_hostile([](auto bytes) { GgufFile::from_bytes(bytes, "hostile.gguf"); }, file),
      read_hostile([&](auto bytes) { parse_json_object(text(bytes), "hostile.json"); }, file),
      read_hostile([&](auto bytes) { parse_shard_index(text(bytes), "hostile.index.json"); }, file),
  };
}

TEST(Foreign, EveryReaderSaysWhatTheFileIs) {
  const std::pair<std::string, const char*> files[] = {
      {kPointer, "is a Git LFS pointer"},
      {"<!DOCTYPE html><html><body>404</body></html>", "is a web page"},
      {"\xef\xbb\xbf \r\n<HTML lang=\"en\">", "is a web page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "is a web page"},
      {std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0", 12), "is a zip archive"},
      {std::string("\x1f\x8b\x08\0\xde\xad\xbe\xef\0\x03", 10), "is compressed with gzip"},
      {std::string(5000, '\0'), "is filled with zeros"},
  };
  for (const auto& [file, what] : files)
    for (const std::string& message : refusals(file))
      EXPECT_NE(message.find(what), std::string::npos) << message << "\nlacks: " << what;
}

TEST(Foreign, ASafetensorsFileForAGgufIsNamed) {
  const std::string file = testing::le(uint64_t{2}) + "{}";
  const std::string message = read_hostile([](auto bytes) { GgufFile::from_bytes(bytes, "hostile.gguf"); }, file);
  EXPECT_NE(message.find("a safetensors file: name the folder"), std::string::npos) << message;
}

// A header of 0x8b1f bytes begins like gzip, and is read.
TEST(Foreign, AHeaderLengthThatLooksLikeAMagicIsNone) {
  std::string header = "{\"__metadata__\":{\"k\":\"\"}}";
  header.resize(0x088b1f, ' ');
  EXPECT_EQ(read_hostile([](auto bytes) { SafetensorsFile::from_bytes(bytes, "hostile."); },
                         testing::le(uint64_t{0x088b1f}) + header),
            "");
}

TEST(Foreign, OtherTextIsNotJudged) {
  for (const char* text : {"", "{}", "version https", "< html", "html", "P", "\x1f"})
    EXPECT_NO_THROW(refuse_foreign(text, "file")) << text;
}

}  // namespace
}  // namespace spyre::formats
