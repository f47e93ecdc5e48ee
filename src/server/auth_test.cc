#include "server/auth.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"

namespace spyre::server {
namespace {

TEST(Auth, WantsABearerWithOneOfTheKeys) {
  const std::vector<std::string> keys = {"secret", "other"};
  EXPECT_TRUE(authorized("Bearer secret", keys));
  EXPECT_TRUE(authorized("bearer other", keys));
  EXPECT_TRUE(authorized("Bearer  secret ", keys));
  for (const char* bad : {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer Secret",
                          "Basic secret", "Digest secret", "Bearersecret"}) {
    EXPECT_FALSE(authorized(bad, keys)) << bad;
  }
  EXPECT_TRUE(authorized("", {}));
}

TEST(Auth, ReadsKeysFromAFile) {
  const std::string path = ::testing::TempDir() + "/spyre_keys";
  std::ofstream(path) << "# keys\n\n  one \r\ntwo";
  EXPECT_EQ(read_key_file(path), (std::vector<std::string>{"one", "two"}));
  std::ofstream(path) << "# none\n";
  EXPECT_THROW(read_key_file(path), Error);
  std::remove(path.c_str());
  EXPECT_THROW(read_key_file(path), Error);
}

}  // namespace
}  // namespace spyre::server
