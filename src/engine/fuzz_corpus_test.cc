// Replays tests/data/fuzz. A file called good-* must be taken and bad-* refused; others (found by a fuzzer) may be
// either.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "engine/fuzz_entries.h"

namespace spyre::engine {
namespace {

namespace fs = std::filesystem;

TEST(FuzzCorpus, Recording) {
  int files = 0;
  for (const auto& item : fs::directory_iterator(fs::path(SPYRE_TEST_DATA) / "fuzz/recording")) {
    const std::string name = item.path().filename().string();
    SCOPED_TRACE(name);
    const std::string message = fuzz_recording(read_file(item.path(), 1 << 20));
    ++files;
    if (name.starts_with("good-")) {
      EXPECT_EQ(message, "");
    }
    if (name.starts_with("bad-")) {
      EXPECT_NE(message, "");
    }
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
  }
  EXPECT_GE(files, 8);
}

}  // namespace
}  // namespace spyre::engine
