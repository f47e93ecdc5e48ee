// Replays tests/data/fuzz. A file called good-* must be taken and bad-* refused; others (found by a fuzzer) may be
// either.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/testing/fuzz_entries.h"

namespace spyre::server {
namespace {

namespace fs = std::filesystem;

void replay(const std::string& corpus, std::string (*entry)(std::string_view)) {
  int files = 0;
  for (const auto& item : fs::directory_iterator(fs::path(SPYRE_TEST_DATA) / "fuzz" / corpus)) {
    const std::string name = item.path().filename().string();
    std::ifstream file(item.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string message = entry(bytes);
    ++files;
    if (name.starts_with("good-")) {
      EXPECT_EQ(message, "") << name;
    }
    if (name.starts_with("bad-")) {
      EXPECT_NE(message, "") << name;
    }
  }
  EXPECT_GE(files, 10) << corpus;
}

TEST(FuzzCorpus, RequestJson) {
  replay("request_json", fuzz_request_json);
}
TEST(FuzzCorpus, Http) {
  replay("http", fuzz_http);
}

}  // namespace
}  // namespace spyre::server
