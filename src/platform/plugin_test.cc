#include "platform/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/build_id.h"
#include "base/error.h"

namespace spyre::platform {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A folder with plugins; the environment is put back afterwards.
class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "spyre_plugins_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    unsetenv("SPYRE_PLUGINS");
    unsetenv("SPYRE_PLUGIN_PATH");
  }
  void TearDown() override {
    unsetenv("SPYRE_PLUGINS");
    unsetenv("SPYRE_PLUGIN_PATH");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // The library is copied: a manifest's library lies in its folder.
  void add_library(const std::string& library, const fs::path& to = {}) {
    fs::copy_file(fs::path(SPYRE_DUMMY_PLUGINS) / (library + ".so"), folder_ / to / (library + ".so"),
                  fs::copy_options::overwrite_existing);
  }
  void write(const std::string& file, const std::string& text) { std::ofstream(folder_ / file) << text; }
  void add_plugin(const std::string& name, const std::string& library) {
    add_library(library);
    write(name + ".json", manifest(name, library + ".so"));
  }
  static std::string manifest(const std::string& name, const std::string& library) {
    return R"({"name": ")" + name + R"(", "group": "platform", "library": ")" + library + R"("})";
  }

  PlatformRegistry discover() { return PlatformRegistry::discover({folder_}); }
  std::string problem_of(const std::string& name) {
    const PlatformRegistry registry = discover();
    for (const PluginRecord& plugin : registry.plugins()) {
      if (plugin.name == name) return plugin.problem;
    }
    return "no such plugin";
  }
  template <typename Call>
  static std::string error_of(Call&& call, ErrorCode code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(PluginTest, BuiltInPlatformsAreThereWithoutPlugins) {
  const PlatformRegistry registry = discover();
  EXPECT_THAT(registry.names(), ::testing::ElementsAre("cpu", "null"));
  EXPECT_TRUE(registry.plugins().empty());
  EXPECT_EQ(registry.get("cpu").name(), "cpu");
  EXPECT_THAT(error_of([&] { registry.get("spyre"); }, ErrorCode::kNotFound), HasSubstr("known: cpu, null"));
  error_of([&] { registry.get("auto"); }, ErrorCode::kNotFound);
}

TEST_F(PluginTest, GoodPluginIsLoadedAndIsAuto) {
  add_plugin("dummy", "good");
  const PlatformRegistry registry = discover();
  ASSERT_EQ(registry.plugins().size(), 1u);
  EXPECT_EQ(registry.plugins()[0].problem, "");
  EXPECT_EQ(&registry.get("auto"), &registry.get("dummy"));
  EngineConfig config;
  registry.get("dummy").check_and_update_config(config, {});
  EXPECT_EQ(config.threads, 7);
  // An Error crosses the library's boundary as what it is.
  EXPECT_THAT(error_of([&] { registry.get("dummy").create_model_runner(config, nullptr); }, ErrorCode::kUnsupported),
              HasSubstr("the dummy runs nothing"));
}

TEST_F(PluginTest, ForeignBuildIsNamedWithBothIds) {
  add_plugin("dummy", "foreign");
  EXPECT_THAT(problem_of("dummy"), HasSubstr("0.0.0-foreign"));
  EXPECT_THAT(problem_of("dummy"), HasSubstr(std::string(build_id())));
  const PlatformRegistry registry = discover();
  EXPECT_THAT(error_of([&] { registry.get("dummy"); }, ErrorCode::kFailedPrecondition), HasSubstr("another build"));
  EXPECT_THAT(error_of([&] { registry.get("auto"); }, ErrorCode::kFailedPrecondition), HasSubstr("another build"));
  EXPECT_EQ(registry.get("cpu").name(), "cpu") << "a broken plugin takes nothing else down";
}

TEST_F(PluginTest, BrokenLibrariesAreNamed) {
  add_plugin("entryless", "no_entry");
  add_plugin("dummy", "misnamed");
  add_plugin("misnamed", "misnamed");
  write("absent.json", manifest("absent", "absent.so"));
  write("garbage.so", "no ELF at all");
  write("garbage.json", manifest("garbage", "garbage.so"));
  EXPECT_THAT(problem_of("entryless"), HasSubstr("spyre_platform_plugin"));
  EXPECT_THAT(problem_of("dummy"), HasSubstr("'somebody_else'"));
  EXPECT_THAT(problem_of("absent"), HasSubstr("absent.so"));
  EXPECT_THAT(problem_of("garbage"), HasSubstr("does not load"));
  EXPECT_THAT(discover().names(), ::testing::ElementsAre("cpu", "null"));
}

TEST_F(PluginTest, CreateThatThrowsIsAReason) {
  add_plugin("dummy", "throwing");
  EXPECT_EQ(problem_of("dummy"), "no such card");
}

TEST_F(PluginTest, HostileManifestsAreKeptWithTheirReason) {
  add_library("good");
  const std::vector<std::pair<std::string, std::string>> manifests = {
      {"empty", ""},
      {"cut", R"({"name": "cut", "gro)"},
      {"list", "[1, 2]"},
      {"nameless", R"({"group": "platform", "library": "good.so"})"},
      {"number", R"({"name": 7, "group": "platform", "library": "good.so"})"},
      {"newline", R"({"name": "a\nb", "group": "platform", "library": "good.so"})"},
      {"long", R"({"name": ")" + std::string(65, 'x') + R"(", "group": "platform", "library": "good.so"})"},
      {"group", R"({"name": "group", "group": "general", "library": "good.so"})"},
      {"absolute", manifest("absolute", "/lib/x86_64-linux-gnu/libc.so.6")},
      {"outside", manifest("outside", "../good.so")},
      {"nul", R"({"name": "nul", "group": "platform", "library": "good.so\u0000x"})"},
      {"deep", std::string(50000, '[')},
      {"huge", std::string(1 << 20, ' ')},
  };
  for (const auto& [name, text] : manifests) write(name + ".json", text);
  fs::create_directory(folder_ / "folder.json");
  const PlatformRegistry registry = discover();
  EXPECT_THAT(registry.names(), ::testing::ElementsAre("cpu", "null"));
  EXPECT_EQ(registry.plugins().size(), manifests.size() + 1);
  for (const PluginRecord& plugin : registry.plugins()) {
    EXPECT_NE(plugin.problem, "") << plugin.manifest;
    EXPECT_EQ(plugin.problem.find('\n'), std::string::npos) << plugin.problem;
    EXPECT_LT(plugin.problem.size(), 500u);
  }
}

TEST_F(PluginTest, TwoClaimsOfOneNameAreRefusedWithBothPaths) {
  add_plugin("dummy", "good");
  write("again.json", manifest("dummy", "good.so"));
  const std::string message = error_of([&] { discover(); }, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(message, HasSubstr("dummy.json"));
  EXPECT_THAT(message, HasSubstr("again.json"));
}

TEST_F(PluginTest, BuiltInNameCannotBeClaimed) {
  add_plugin("cpu", "good");
  EXPECT_THAT(error_of([&] { discover(); }, ErrorCode::kFailedPrecondition), HasSubstr("built-in"));
}

TEST_F(PluginTest, OneFolderNamedTwiceCountsOnce) {
  add_plugin("dummy", "good");
  EXPECT_EQ(PlatformRegistry::discover({folder_, folder_ / "."}).plugins().size(), 1u);
}

TEST_F(PluginTest, FilterLimitsWhatIsLoaded) {
  add_plugin("dummy", "good");
  add_plugin("other", "foreign");
  setenv("SPYRE_PLUGINS", "dummy", 1);
  EXPECT_EQ(discover().plugins().size(), 1u);
  setenv("SPYRE_PLUGINS", "", 1);
  EXPECT_TRUE(discover().plugins().empty());
  setenv("SPYRE_PLUGINS", "dummy,nobody", 1);
  const std::string message = error_of([&] { discover(); }, ErrorCode::kInvalidArgument);
  EXPECT_THAT(message, HasSubstr("'nobody'"));
  EXPECT_THAT(message, HasSubstr("dummy, other"));
}

TEST_F(PluginTest, FilterSettlesTwoClaims) {
  add_plugin("dummy", "good");
  add_plugin("twin", "good");
  write("twin2.json", manifest("twin", "good.so"));
  setenv("SPYRE_PLUGINS", "dummy", 1);
  EXPECT_THAT(discover().names(), ::testing::ElementsAre("cpu", "null", "dummy"));
}

TEST_F(PluginTest, SearchPathComesAfterTheInstalledFolder) {
  setenv("SPYRE_PLUGIN_PATH", (folder_.string() + "::/no/such/folder").c_str(), 1);
  const std::vector<fs::path> dirs = PlatformRegistry::default_manifest_dirs();
  ASSERT_EQ(dirs.size(), 3u);
  EXPECT_THAT(dirs[0].string(), ::testing::EndsWith("lib/spyre/plugins"));
  EXPECT_EQ(dirs[1], folder_);
  add_plugin("dummy", "good");
  EXPECT_EQ(PlatformRegistry::discover({dirs[1], dirs[2]}).plugins().size(), 1u);
}

}  // namespace
}  // namespace spyre::platform
