#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

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

TEST_F(FileTest, MapsReadsAndMoves) {
  MappedFile file = MappedFile::open(root_ / "model" / "a.bin");
  ASSERT_EQ(file.size(), 3u);
  EXPECT_EQ(static_cast<char>(file.bytes()[2]), 'c');
  file.will_need(0, ~size_t{0});
  file.done_with(0, ~size_t{0});
  file.will_need(99, 1);
  file.done_with(99, 1);
  const MappedFile moved = std::move(file);
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'a');
  EXPECT_EQ(read_file(root_ / "model" / "a.bin", 3), "abc");
}

TEST_F(FileTest, AnEmptyFileIsAnEmptySpan) {
  write(root_ / "empty", "");
  EXPECT_TRUE(MappedFile::open(root_ / "empty").bytes().empty());
  EXPECT_EQ(read_file(root_ / "empty", 0), "");
}

TEST_F(FileTest, NamesWhatIsNoRegularFile) {
  EXPECT_THAT(refusal([&] { MappedFile::open(root_ / "nope"); }, ErrorCode::kNotFound), HasSubstr("nope"));
  EXPECT_THAT(refusal([&] { MappedFile::open(root_ / "model"); }, ErrorCode::kInvalidArgument), HasSubstr("a folder"));
  EXPECT_THAT(refusal([&] { read_file("/dev/zero", 10); }, ErrorCode::kInvalidArgument), HasSubstr("device"));
  const fs::path pipe = root_ / "pipe";  // must not hang
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refusal([&] { MappedFile::open(pipe); }, ErrorCode::kInvalidArgument);
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
