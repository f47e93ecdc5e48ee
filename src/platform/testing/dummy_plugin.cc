// A platform plugin of a few lines, built several times with one thing wrong (see CMakeLists.txt).
#include <stdexcept>

#include "base/build_id_value.h"
#include "base/error.h"
#include "platform/plugin.h"

#ifndef DUMMY_BUILD_ID
#define DUMMY_BUILD_ID SPYRE_BUILD_ID
#endif
#ifndef DUMMY_NAME
#define DUMMY_NAME "dummy"
#endif

namespace {

class DummyPlatform final : public spyre::platform::Platform {
 public:
  std::string name() const override { return DUMMY_NAME; }
  std::string description() const override { return "for tests"; }
  void check_and_update_config(spyre::platform::EngineConfig& config,
                               const spyre::formats::ModelConfig& /*model*/) const override {
    config.threads = 7;
  }
  std::unique_ptr<spyre::runner::ModelRunner> create_model_runner(
      const spyre::platform::EngineConfig& /*config*/,
      std::shared_ptr<const spyre::formats::Checkpoint> /*checkpoint*/) const override {
    throw spyre::Error(spyre::ErrorCode::kUnsupported, "the dummy runs nothing");
  }
};

[[maybe_unused]] spyre::platform::Platform* create() {
#ifdef DUMMY_THROWS
  throw std::runtime_error("no such card");
#else
  return new DummyPlatform();
#endif
}

}  // namespace

#ifndef DUMMY_NO_ENTRY
extern "C" SPYRE_API const spyre::platform::PluginEntry* spyre_platform_plugin() {
  static const spyre::platform::PluginEntry entry{.build_id = DUMMY_BUILD_ID, .name = DUMMY_NAME, .create = create};
  return &entry;
}
#endif
