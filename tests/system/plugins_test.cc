// Plugins as the program finds them: listed, filtered, and named with their reason when they are broken.
#include <gmock/gmock.h>

#include <algorithm>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json platform_named(const json& platforms, const std::string& name) {
  const auto found = std::find_if(platforms.begin(), platforms.end(), [&](const json& p) { return p["name"] == name; });
  return found == platforms.end() ? json() : *found;
}

Arguments generate_on(const std::string& platform) {
  return {"generate", golden("llama_gqa64"), "--prompt-ids", "5,17", "--max-tokens", "2", "--platform", platform};
}

TEST(Platforms, ListsWhatThereIs) {
  const json platforms = run({"platforms", "--format", "json"}).json();
  EXPECT_EQ(platform_named(platforms, "cpu")["origin"], "built in");
  EXPECT_THAT(platform_named(platforms, "spyre")["origin"].get<std::string>(), HasSubstr("spyre.json"));
  EXPECT_THAT(run({"platforms"}).out, HasSubstr("spyre"));
}

TEST(Platforms, AutoIsTheOnePlugin) {
  EXPECT_EQ(run(generate_on("auto")).out, run(generate_on("spyre")).out);
}

TEST(Plugins, TheFilterLeavesOnlyWhatItNames) {
  const json none = run({"platforms", "--format", "json"}, {{"SPYRE_PLUGINS", ""}}).json();
  EXPECT_TRUE(platform_named(none, "spyre").is_null());
  EXPECT_FALSE(platform_named(none, "cpu").is_null());
  const json one = run({"platforms", "--format", "json"}, {{"SPYRE_PLUGINS", "spyre"}}).json();
  EXPECT_FALSE(platform_named(one, "spyre").is_null());

  const Outcome gone = run(generate_on("spyre"), {{"SPYRE_PLUGINS", ""}});
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.err, HasSubstr("no platform 'spyre'"));
  EXPECT_EQ(run(generate_on("cpu"), {{"SPYRE_PLUGINS", ""}}).code, 0);

  const Outcome unknown = run(generate_on("spyre"), {{"SPYRE_PLUGINS", "spyre,abacus"}});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("abacus"));
}

TEST(Plugins, ABrokenOneIsNamedWithItsReason) {
  const ScratchFolder folder;
  folder.write("abacus.json", R"({"name": "abacus", "group": "platform", "library": "libabacus.so"})");
  folder.write("libabacus.so", "this is no library");
  const Variables path = {{"SPYRE_PLUGIN_PATH", folder.path().string()}};

  const json abacus = platform_named(run({"platforms", "--format", "json"}, path).json(), "abacus");
  EXPECT_THAT(abacus["problem"].get<std::string>(), HasSubstr("libabacus.so"));
  EXPECT_THAT(run({"platforms"}, path).out, HasSubstr("broken"));
  const Outcome asked = run(generate_on("abacus"), path);
  EXPECT_EQ(asked.code, 1);
  EXPECT_THAT(asked.err, HasSubstr("abacus.json"));
  EXPECT_EQ(run(generate_on("spyre"), path).code, 0);  // the others are not hurt
}

TEST(Plugins, AManifestThatIsNoJsonIsNamed) {
  const ScratchFolder folder;
  folder.write("torn.json", R"({"name": "torn", )");
  const Outcome outcome = run({"platforms"}, {{"SPYRE_PLUGIN_PATH", folder.path().string()}});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("torn.json"));
}

TEST(Plugins, TwoForOneNameAreRefused) {
  const ScratchFolder folder;
  folder.write("other.json", R"({"name": "spyre", "group": "platform", "library": "libother.so"})");
  const Outcome outcome = run(generate_on("spyre"), {{"SPYRE_PLUGIN_PATH", folder.path().string()}});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("two plugins claim the platform 'spyre'"));
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
}

}  // namespace
}  // namespace spyre::system_test
