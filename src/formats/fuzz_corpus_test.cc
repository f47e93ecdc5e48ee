// Replays tests/data/fuzz. A file called good-* must be taken and bad-* refused; others (found by a fuzzer) may be
// either.
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/fuzz_entries.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

namespace fs = std::filesystem;

void replay(const std::string& corpus, std::string (*entry)(std::span<const std::byte>), const char* file_name) {
  int files = 0;
  for (const auto& item : fs::directory_iterator(fs::path(SPYRE_TEST_DATA) / "fuzz" / corpus)) {
    const std::string name = item.path().filename().string(), bytes = testing::slurp(item.path().string());
    SCOPED_TRACE(name);
    ++files;
    std::string message;
    testing::read_hostile([&](std::span<const std::byte> copy) { message = entry(copy); }, bytes);
    if (name.starts_with("good-")) {
      EXPECT_EQ(message, "");
    }
    if (name.starts_with("bad-")) {
      EXPECT_NE(message, "");
    }
    if (!message.empty()) testing::expect_fit_to_show(message, file_name);
  }
  EXPECT_GE(files, 5) << corpus;
}

TEST(FuzzCorpus, Gguf) {
  replay("gguf", fuzz_gguf, "fuzz.gguf");
}
TEST(FuzzCorpus, Safetensors) {
  replay("safetensors", fuzz_safetensors, "fuzz.");
}
TEST(FuzzCorpus, Config) {
  replay("config", fuzz_config, "config.json");
}

}  // namespace
}  // namespace spyre::formats
