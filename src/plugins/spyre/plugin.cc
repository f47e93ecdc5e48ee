// The plugin's one exported symbol.
#include "platform/plugin.h"
#include "base/build_id_value.h"
#include "plugins/spyre/platform.h"

extern "C" SPYRE_API const spyre::platform::PluginEntry* spyre_platform_plugin() {
  static const spyre::platform::PluginEntry entry{
      .build_id = SPYRE_BUILD_ID,
      .name = "spyre",
      .create = []() -> spyre::platform::Platform* { return new spyre::plugin::SpyrePlatform(); },
  };
  return &entry;
}
