#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <span>

#include "base/error.h"

namespace spyre {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "spyre-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::create_directories(root_ / "model" / "sub");
    write(root_ / "model" / "a.bin", "abc");
    write(root_ / "model" / "sub" / "b.bin", "b");
    write(root_ / "secret", "s");
  }
  void TearDown() override { fs::remove_all(root_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

  template <typename Function>
  static std::string refusal(Function&& function, ErrorCode code) {
    try {
      function();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  fs::path root_;
};

std::string bytes_at(const InputFile& file, uint64_t offset, size_t count) {
  std::string text(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

TEST_F(FileTest, OpensReadsAndMoves) {
  InputFile file = InputFile::open(root_ / "model" / "a.bin");
  ASSERT_EQ(file.size(), 3u);
  EXPECT_EQ(bytes_at(file, 1, 2), "bc");
  EXPECT_EQ(bytes_at(file, 3, 0), "");
  file.will_need(0, 3);
  file.will_need(99, 1);
  const InputFile moved = std::move(file);
  EXPECT_EQ(bytes_at(moved, 0, 1), "a");
  EXPECT_EQ(read_file(root_ / "model" / "a.bin", 3), "abc");
}

TEST_F(FileTest, AnEmptyFileHasNothingToRead) {
  write(root_ / "empty", "");
  const InputFile file = InputFile::open(root_ / "empty");
  EXPECT_EQ(file.size(), 0u);
  refusal([&] { bytes_at(file, 0, 1); }, ErrorCode::kCorruptData);
  EXPECT_EQ(read_file(root_ / "empty", 0), "");
}

TEST_F(FileTest, AFileThatIsCutWhileItIsOpenIsAnErrorAndOneThatIsReplacedStays) {
  const fs::path path = root_ / "model" / "a.bin";
  write(path, std::string(10000, 'x'));
  const InputFile file = InputFile::open(path);
  write(root_ / "model" / "new.bin", "other");
  fs::rename(root_ / "model" / "new.bin", path);
  EXPECT_EQ(bytes_at(file, 9000, 1000), std::string(1000, 'x'));

  write(root_ / "cut", std::string(10000, 'x'));
  const InputFile cut = InputFile::open(root_ / "cut");
  fs::resize_file(root_ / "cut", 5000);
  EXPECT_EQ(bytes_at(cut, 0, 5000).size(), 5000u);
  const std::string message = refusal([&] { bytes_at(cut, 4000, 2000); }, ErrorCode::kCorruptData);
  EXPECT_THAT(message, HasSubstr("cut' has become shorter"));
  EXPECT_THAT(message, HasSubstr("10000 bytes, now 1000 of the 2000 at 4000"));
  refusal([&] { bytes_at(cut, 9000, 1); }, ErrorCode::kCorruptData);
}

TEST_F(FileTest, NamesWhatIsNoRegularFile) {
  EXPECT_THAT(refusal([&] { InputFile::open(root_ / "nope"); }, ErrorCode::kNotFound), HasSubstr("nope"));
  EXPECT_THAT(refusal([&] { InputFile::open(root_ / "model"); }, ErrorCode::kInvalidArgument), HasSubstr("a folder"));
  EXPECT_THAT(refusal([&] { read_file("/dev/zero", 10); }, ErrorCode::kInvalidArgument), HasSubstr("device"));
  const fs::path pipe = root_ / "pipe";  // must not hang
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refusal([&] { InputFile::open(pipe); }, ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, ReadFileKeepsItsBound) {
  EXPECT_THAT(refusal([&] { read_file(root_ / "model" / "a.bin", 2); }, ErrorCode::kResourceExhausted),
              HasSubstr("has 3 bytes; at most 2"));
}

TEST_F(FileTest, ContainedPathsStayInside) {
  const fs::path model = root_ / "model";
  EXPECT_EQ(contained_path(model, "a.bin"), fs::canonical(model / "a.bin"));
  EXPECT_EQ(contained_path(model, "sub/b.bin"), fs::canonical(model / "sub" / "b.bin"));
  fs::create_symlink("a.bin", model / "inner-link");
  EXPECT_EQ(contained_path(model, "inner-link"), fs::canonical(model / "a.bin"));

  fs::create_symlink(root_ / "secret", model / "outer-link");
  fs::create_directory_symlink(root_, model / "outer-folder");
  fs::create_directories(root_ / "model-other");  // shares a prefix of its name, and nothing else
  write(root_ / "model-other" / "c.bin", "c");
  fs::create_symlink(root_ / "model-other" / "c.bin", model / "sibling-link");
  for (const std::string_view name :
       {std::string_view(""), std::string_view("../secret"), std::string_view("sub/../../secret"),
        std::string_view("/etc/passwd"), std::string_view("outer-link"), std::string_view("outer-folder/secret"),
        std::string_view("sibling-link"), std::string_view("a.bin\0x", 7), std::string_view("sub/..")})
    refusal([&] { contained_path(model, name); }, ErrorCode::kCorruptData);
  refusal([&] { contained_path(model, std::string(5000, 'x')); }, ErrorCode::kCorruptData);
  refusal([&] { contained_path(model, "gone.bin"); }, ErrorCode::kNotFound);
  for (const char* name : {"../a\nb", "a\nb", "\x1b[31m"}) {
    const std::string message = refusal([&] { contained_path(model, name); }, ErrorCode::kCorruptData);
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
  }
}

// models--org--name/snapshots/REV/file -> ../../blobs/HASH
TEST_F(FileTest, AHuggingFaceCacheMayLinkIntoItsBlobs) {
  const fs::path snapshot = root_ / "models--x" / "snapshots" / "rev";
  fs::create_directories(snapshot);
  fs::create_directories(root_ / "models--x" / "blobs");
  write(root_ / "models--x" / "blobs" / "hash", "weights");
  fs::create_symlink("../../blobs/hash", snapshot / "model.safetensors");
  fs::create_symlink(root_ / "secret", snapshot / "evil");
  EXPECT_EQ(contained_path(snapshot, "model.safetensors"), fs::canonical(root_ / "models--x" / "blobs" / "hash"));
  refusal([&] { contained_path(snapshot, "evil"); }, ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace spyre
