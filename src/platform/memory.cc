#include "platform/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace spyre::platform {
namespace {

// A number that stands alone in a file. Nothing when there is no file or the word is none ("max").
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (!(in >> value) || value < 0) return std::nullopt;
  return value;
}

// The number behind |key| in a file of "key number" or "key: number kB" lines.
std::optional<int64_t> number_of(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, unit;
    int64_t value = 0;
    if (!(words >> name >> value) || name != key || value < 0) continue;
    words >> unit;
    return unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* use;
  const char* droppable;  // key of memory.stat
};
constexpr CgroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kV2 = {"memory.max", "memory.current", "inactive_file"};

std::optional<int64_t> room_in(const std::string& folder, const CgroupFiles& files) {
  const std::optional<int64_t> limit = number_in(folder + "/" + files.limit);
  const std::optional<int64_t> use = number_in(folder + "/" + files.use);
  if (!limit || !use) return std::nullopt;
  const int64_t droppable = number_of(folder + "/memory.stat", files.droppable).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*use - droppable, 0), 0);
}

class Least {
 public:
  void keep(std::optional<int64_t> value) {
    if (value && (least_ < 0 || *value < least_)) least_ = *value;
  }
  int64_t value() const { return least_; }

 private:
  int64_t least_ = -1;
};

// The cgroup at |path| below |mount|, and its ancestors up to the mount itself (in a container the path may be the
// host's, and only the mount exists here).
void keep_ancestors(Least& least, const std::string& mount, std::string path, const CgroupFiles& files) {
  for (;;) {
    least.keep(room_in(mount + path, files));
    if (path.empty()) return;
    path.resize(std::min(path.rfind('/'), path.size()));
  }
}

}  // namespace

int64_t available_memory(const std::string& root) {
  Least least;
  least.keep(number_of(root + "/proc/meminfo", "MemAvailable:"));
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/" || path.empty() || path[0] != '/') path.clear();
    if (controllers.empty()) {
      keep_ancestors(least, root + "/sys/fs/cgroup", path, kV2);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      keep_ancestors(least, root + "/sys/fs/cgroup/memory", path, kV1);
    }
  }
  return least.value();
}

int64_t used_memory(const std::string& root) {
  return number_of(root + "/proc/self/status", "RssAnon:").value_or(0);
}

void require_memory(std::string_view what, int64_t count, std::string_view unit, int64_t bytes_each,
                    std::string_view remedy, int64_t available) {
  SPYRE_CHECK(count >= 0 && bytes_each >= 0, "{} x {}", count, bytes_each);
  const int64_t most = available < 0 ? std::numeric_limits<int64_t>::max() : available;
  if (bytes_each == 0 || count <= most / bytes_each) return;
  throw_error(ErrorCode::kResourceExhausted, "{}: {} {} x {} bytes = {:.2f} GiB, {:.2f} GiB are {}: {}", what, count,
              unit, bytes_each, static_cast<double>(count) * static_cast<double>(bytes_each) / (1 << 30),
              static_cast<double>(most) / (1 << 30), available < 0 ? "addressable" : "available", remedy);
}

void require_memory(std::string_view what, int64_t count, std::string_view unit, int64_t bytes_each,
                    std::string_view remedy) {
  require_memory(what, count, unit, bytes_each, remedy, available_memory());
}

}  // namespace spyre::platform
