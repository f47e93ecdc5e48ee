#include "platform/plugin.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/build_id.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/json.h"
#include "platform/cpu_platform.h"
#include "platform/null_platform.h"

namespace spyre::platform {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxManifestBytes = 64 << 10;
constexpr size_t kMaxManifests = 256;  // of one folder
constexpr size_t kMaxNameLength = 64;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Names stand in messages, flags and lists: letters, digits, '-' and '_'.
bool is_plugin_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || c == '-' || c == '_');
  });
}

struct Manifest {
  std::string name;
  fs::path path;
  std::string library;
  std::string problem;
};

std::string string_key(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    throw_error(ErrorCode::kCorruptData, "the key '{}' must be there and be a string", key);
  }
  return found->get<std::string>();
}

// Never throws for what a file may hold: a bad manifest is one with a problem, under the name of its file.
Manifest read_manifest(const fs::path& path) {
  Manifest manifest{.name = path.stem().string(), .path = path, .library = {}, .problem = {}};
  try {
    const nlohmann::json json =
        formats::parse_json_object(read_file(path, kMaxManifestBytes), path.filename().string());
    const std::string name = string_key(json, "name");
    if (!is_plugin_name(name)) {
      throw_error(ErrorCode::kCorruptData, "the name must be 1 to {} letters, digits, '-' or '_'", kMaxNameLength);
    }
    manifest.name = name;
    const std::string group = string_key(json, "group");
    if (group != "platform") throw_error(ErrorCode::kUnsupported, "the group is not 'platform', the only one known");
    manifest.library = string_key(json, "library");
  } catch (const std::exception& error) {
    manifest.problem = error.what();
  }
  return manifest;
}

// Sorted by file name; a file that is found twice (one folder under two names) counts once.
std::vector<Manifest> read_manifests(const std::vector<fs::path>& dirs) {
  std::vector<Manifest> manifests;
  std::set<fs::path> seen;
  for (const fs::path& dir : dirs) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".json") paths.push_back(it->path());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      log().warn("plugin folder {} cannot be read: {}", dir.string(), error.message());
    }
    if (paths.size() > kMaxManifests) {
      throw_error(ErrorCode::kResourceExhausted, "{} has {} plugin manifests, at most {} are read", dir.string(),
                  paths.size(), kMaxManifests);
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      const fs::path real = fs::weakly_canonical(path, error);
      if (seen.insert(error ? path : real).second) manifests.push_back(read_manifest(path));
    }
  }
  return manifests;
}

// What SPYRE_PLUGINS says; nothing when it is not set.
std::optional<std::set<std::string>> wanted_plugins() {
  const char* value = std::getenv("SPYRE_PLUGINS");
  if (value == nullptr) return std::nullopt;
  const std::vector<std::string> names = split(value, ',');
  return std::set<std::string>(names.begin(), names.end());
}

void keep_wanted(std::vector<Manifest>& manifests) {
  const std::optional<std::set<std::string>> wanted = wanted_plugins();
  if (!wanted) return;
  std::vector<std::string> found;
  for (const Manifest& manifest : manifests) found.push_back(manifest.name);
  for (const std::string& name : *wanted) {
    if (std::find(found.begin(), found.end(), name) == found.end()) {
      throw_error(ErrorCode::kInvalidArgument, "SPYRE_PLUGINS names '{}', which no manifest has; found: {}", name,
                  found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")));
    }
  }
  std::erase_if(manifests, [&](const Manifest& manifest) { return !wanted->contains(manifest.name); });
}

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

// The platform of |manifest|'s library. Throws Error with the reason. Binding is lazy until the build ids agree: a
// library of another build is to be named as that, not by the first symbol that it misses. The library stays loaded.
std::unique_ptr<Platform> load(const Manifest& manifest) {
  constexpr auto kCode = ErrorCode::kFailedPrecondition;
  const fs::path library = contained_path(manifest.path.parent_path(), manifest.library);
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) throw_error(kCode, "its library does not load: {}", last_dl_error());
  const auto function = reinterpret_cast<PluginEntryFunction>(dlsym(handle, kPluginEntrySymbol));
  if (function == nullptr) throw_error(kCode, "{} has no entry {}()", library.string(), kPluginEntrySymbol);
  const PluginEntry* entry = function();
  if (entry == nullptr || entry->build_id == nullptr) throw_error(kCode, "its entry states no build id");
  if (entry->build_id != build_id()) {
    throw_error(kCode, "it is of another build: {}, this is {}; plugin and program must be built together",
                entry->build_id, build_id());
  }
  if (entry->name == nullptr || entry->create == nullptr) throw_error(kCode, "its entry is incomplete");
  if (entry->name != manifest.name) {
    throw_error(kCode, "its library calls itself '{}', the manifest '{}'", entry->name, manifest.name);
  }
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr) {
    throw_error(kCode, "its library does not link: {}", last_dl_error());
  }
  std::unique_ptr<Platform> platform(entry->create());
  if (platform == nullptr) throw_error(kCode, "its create() returned nothing");
  if (platform->name() != manifest.name) {
    throw_error(kCode, "its platform calls itself '{}', the manifest '{}'", platform->name(), manifest.name);
  }
  return platform;
}

}  // namespace

PlatformRegistry::PlatformRegistry() {
  platforms_.push_back(std::make_shared<CpuPlatform>());
  platforms_.push_back(std::make_shared<NullPlatform>());
}

PlatformRegistry PlatformRegistry::discover(const std::vector<fs::path>& manifest_dirs) {
  PlatformRegistry registry;
  std::vector<std::string> searched;
  for (const fs::path& dir : manifest_dirs) searched.push_back(dir.lexically_normal().string());
  registry.searched_ = fmt::format("{}", fmt::join(searched, ", "));
  std::vector<Manifest> manifests = read_manifests(manifest_dirs);
  keep_wanted(manifests);

  std::map<std::string, std::string> claimed;
  for (const auto& platform : registry.platforms_) claimed[platform->name()] = "the built-in platform";
  for (const Manifest& manifest : manifests) {
    const auto [at, first] = claimed.emplace(manifest.name, manifest.path.string());
    if (!first) {
      throw_error(
          ErrorCode::kFailedPrecondition,
          "two plugins claim the platform '{}': {} and {}; remove one, or name the wanted ones in SPYRE_PLUGINS",
          manifest.name, at->second, manifest.path.string());
    }
  }
  for (Manifest& manifest : manifests) {
    if (manifest.problem.empty()) {
      try {
        registry.platforms_.push_back(load(manifest));
      } catch (const std::exception& error) {
        manifest.problem = error.what();
      }
    }
    if (!manifest.problem.empty()) {
      log().warn("plugin {} ({}) is broken: {}", manifest.name, manifest.path.string(), manifest.problem);
    }
    registry.plugins_.push_back({manifest.name, manifest.path, manifest.problem});
  }
  return registry;
}

std::vector<fs::path> PlatformRegistry::default_manifest_dirs() {
  std::vector<fs::path> dirs;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) dirs.push_back(program.parent_path().parent_path() / "lib" / "spyre" / "plugins");
  return manifest_dirs(std::move(dirs));
}

std::vector<fs::path> PlatformRegistry::manifest_dirs(std::vector<fs::path> first) {
  if (const char* path = std::getenv("SPYRE_PLUGIN_PATH")) {
    std::error_code error;
    for (const std::string& dir : split(path, ':')) {
      if (!fs::is_directory(dir, error)) log().warn("SPYRE_PLUGIN_PATH: there is no folder {}", dir);
      first.emplace_back(dir);
    }
  }
  return first;
}

const Platform& PlatformRegistry::get(const std::string& name) const {
  if (name == "auto") return automatic();
  for (const auto& platform : platforms_) {
    if (platform->name() == name) return *platform;
  }
  for (const PluginRecord& plugin : plugins_) {
    if (plugin.name == name) {
      throw_error(ErrorCode::kFailedPrecondition, "platform '{}': its plugin ({}) is broken: {}", name,
                  plugin.manifest.string(), plugin.problem);
    }
  }
  throw_error(ErrorCode::kNotFound, "there is no platform '{}'; known: {}{}", name, fmt::join(names(), ", "),
              searched_.empty() ? "" : "; plugins are looked for in " + searched_);
}

const Platform& PlatformRegistry::automatic() const {
  std::vector<std::string> usable, broken;
  for (const PluginRecord& plugin : plugins_) {
    if (plugin.problem.empty()) {
      usable.push_back(plugin.name);
    } else {
      broken.push_back(fmt::format("{} ({}): {}", plugin.name, plugin.manifest.string(), plugin.problem));
    }
  }
  if (usable.size() == 1) return get(usable[0]);
  if (usable.size() > 1) {
    throw_error(ErrorCode::kFailedPrecondition, "there are {} platform plugins ({}): name one", usable.size(),
                fmt::join(usable, ", "));
  }
  if (!broken.empty()) {
    throw_error(ErrorCode::kFailedPrecondition, "no platform plugin is usable: {}", fmt::join(broken, "; "));
  }
  throw_error(ErrorCode::kNotFound, "there is no platform plugin; built in: {}", fmt::join(names(), ", "));
}

std::vector<std::string> PlatformRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& platform : platforms_) names.push_back(platform->name());
  return names;
}

}  // namespace spyre::platform
