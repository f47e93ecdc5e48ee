#include "python/native/platforms.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace spyre::python {
namespace {

namespace fs = std::filesystem;

// An installed module lies beside its lib/; a module in a build tree does not, and SPYRE_PLUGIN_PATH serves it. The
// folders of the running program are none of ours: it is Python.
std::vector<fs::path> manifest_dirs() {
  std::vector<fs::path> dirs;
  Dl_info module;
  if (dladdr(reinterpret_cast<const void*>(&platforms), &module) != 0 && module.dli_fname != nullptr) {
    std::error_code error;
    const fs::path file = fs::weakly_canonical(module.dli_fname, error);
    dirs.push_back((error ? fs::path(module.dli_fname) : file).parent_path() / "lib" / "spyre" / "plugins");
  }
  return platform::PlatformRegistry::manifest_dirs(std::move(dirs));
}

}  // namespace

const platform::PlatformRegistry& platforms() {
  // Never destroyed: workers may outlive the module's statics when the interpreter ends.
  static const auto* registry = new platform::PlatformRegistry(platform::PlatformRegistry::discover(manifest_dirs()));
  return *registry;
}

}  // namespace spyre::python
