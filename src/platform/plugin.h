// Plugins: how a platform outside of this library is found, and what it must export.
//
// A manifest <name>.json lies in <program>/../lib/spyre/plugins, in a folder of SPYRE_PLUGIN_PATH (colon-separated), or
// in one given by the host:
//   {"name": "spyre", "group": "platform", "library": "libspyre_platform.so"}
// The library lies in the folder of the manifest (or below it) and exports spyre_platform_plugin(), which returns a
// static PluginEntry. The build id must be the core library's own: both are one build and share C++ types. A library is
// never unloaded.
//
// SPYRE_PLUGINS=a,b limits what is loaded to these names; set to nothing, it means none. A manifest that cannot be
// read, a library that does not load, lacks the entry or is of another build, is kept as a *broken* plugin with its
// reason: asking for it, or asking for "auto" when nothing else is there, reports the reason; listing shows it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/export.h"
#include "platform/platform.h"

namespace spyre::platform {

struct PluginEntry {
  const char* build_id;
  const char* name;
  Platform* (*create)();  // the caller owns the result
};

using PluginEntryFunction = const PluginEntry* (*)();
inline constexpr const char* kPluginEntrySymbol = "spyre_platform_plugin";

struct PluginRecord {
  std::string name;
  std::filesystem::path manifest;
  std::string problem;  // empty: usable
};

class SPYRE_API PlatformRegistry {
 public:
  // Built-in platforms only.
  PlatformRegistry();
  // Built-in ones and what the manifests name. Throws kFailedPrecondition when two manifests claim one platform name
  // (a built-in one's included), kResourceExhausted for a folder of more than 256 manifests,
  // kInvalidArgument when SPYRE_PLUGINS names a plugin that no manifest has.
  static PlatformRegistry discover(const std::vector<std::filesystem::path>& manifest_dirs);
  // <directory of the running program>/../lib/spyre/plugins, then SPYRE_PLUGIN_PATH.
  static std::vector<std::filesystem::path> default_manifest_dirs();
  // |first|, then the folders of SPYRE_PLUGIN_PATH; one of these that is not there is warned about.
  static std::vector<std::filesystem::path> manifest_dirs(std::vector<std::filesystem::path> first);

  // "auto" is the one usable plugin. Throws kNotFound listing what is known; kFailedPrecondition with the reason for a
  // broken plugin, and for "auto" when several are usable or all are broken. The registry must outlive the result.
  const Platform& get(const std::string& name) const;
  std::vector<std::string> names() const;
  const std::vector<PluginRecord>& plugins() const { return plugins_; }

 private:
  const Platform& automatic() const;

  std::vector<std::shared_ptr<Platform>> platforms_;
  std::vector<PluginRecord> plugins_;
  std::string searched_;  // the folders of manifests, for messages
};

}  // namespace spyre::platform
