// Replays tests/data/fuzz: what is refused is refused in one line, fit to be shown.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "text/fuzz_entries.h"

namespace spyre::text {
namespace {

namespace fs = std::filesystem;

void replay(const std::string& corpus, std::string (*entry)(std::string_view), int least_refused) {
  int files = 0, refused = 0;
  for (const auto& item : fs::directory_iterator(fs::path(SPYRE_TEST_DATA) / "fuzz" / corpus)) {
    const std::string message = entry(read_file(item.path(), size_t{64} << 20));
    ++files;
    refused += message.empty() ? 0 : 1;
    EXPECT_LT(message.size(), 1000u) << item.path() << ": " << message;
    for (const char c : message)
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << item.path() << ": " << message;
  }
  EXPECT_GE(files, 11) << corpus;
  EXPECT_GE(refused, least_refused) << corpus;
  EXPECT_LT(refused, files) << corpus;
}

TEST(FuzzCorpus, TokenizerJson) {
  replay("tokenizer_json", fuzz_tokenizer_json, 2);
}
TEST(FuzzCorpus, ChatTemplate) {
  replay("chat_template", fuzz_chat_template, 3);
}

}  // namespace
}  // namespace spyre::text
