#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace spyre {
namespace fs = std::filesystem;
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// O_NONBLOCK: opening a pipe that nobody writes to must not hang; it has no effect on regular files.
size_t open_regular(const fs::path& path, Descriptor& out) {
  out.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (out.fd < 0) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    throw_error(missing ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument, "cannot open '{}': {}", path.string(),
                std::generic_category().message(error));
  }
  struct stat status{};
  if (::fstat(out.fd, &status) != 0)
    throw_error(ErrorCode::kInvalidArgument, "cannot stat '{}': {}", path.string(),
                std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode))
    throw_error(ErrorCode::kInvalidArgument, "'{}' is {}, not a regular file", path.string(),
                S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket");
  return static_cast<size_t>(status.st_size);
}

bool is_inside(const fs::path& root, const fs::path& target) {
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  return end == root.end();
}

}  // namespace

InputFile InputFile::open(const fs::path& path) {
  Descriptor descriptor;
  InputFile file;
  file.size_ = open_regular(path, descriptor);
  file.path_ = path;
  file.descriptor_ = std::exchange(descriptor.fd, -1);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept {
  *this = std::move(other);
}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw_error(ErrorCode::kUnavailable, "cannot read {} bytes at {} of '{}': {}", out.size(), offset, path_.string(),
                  std::generic_category().message(errno));
    if (got == 0)
      throw_error(ErrorCode::kCorruptData,
                  "'{}' has become shorter while it was read: it had {} bytes, now {} of the {} at {} are there",
                  path_.string(), size_, done, out.size(), offset);
    done += static_cast<size_t>(got);
  }
}

void InputFile::will_need(uint64_t offset, uint64_t length) const {
  // The kernel starts at most one request's worth per call (some 0.5 to 1.3 MB) and drops the rest.
  constexpr uint64_t kPiece = 256 * 1024;
  for (uint64_t done = 0; done < length; done += kPiece) {
    ::posix_fadvise(descriptor_, static_cast<off_t>(offset + done), static_cast<off_t>(std::min(kPiece, length - done)),
                    POSIX_FADV_WILLNEED);
  }
}

std::string read_file(const fs::path& path, size_t max_bytes) {
  Descriptor descriptor;
  const size_t size = open_regular(path, descriptor);
  if (size > max_bytes)
    throw_error(ErrorCode::kResourceExhausted, "'{}' has {} bytes; at most {} are read", path.string(), size,
                max_bytes);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(descriptor.fd, text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw_error(ErrorCode::kUnavailable, "cannot read '{}': {}", path.string(),
                  std::generic_category().message(errno));
    if (got == 0) break;  // became shorter meanwhile
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

fs::path contained_path(const fs::path& folder, std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    std::string shown(name.substr(0, 120));
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    throw_error(ErrorCode::kCorruptData, "file name '{}' in '{}' is refused: {}", shown, folder.string(), why);
  };
  if (name.empty()) refuse("it is empty");
  if (name.size() > 1024) refuse("it is longer than 1024 bytes");
  if (name.find('\0') != std::string_view::npos) refuse("it has a NUL byte");
  for (char c : name)  // the name stands in later messages, which are one line each
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse("it has a control character");
  const fs::path relative(name);
  if (relative.is_absolute()) refuse("it is absolute");
  for (const fs::path& part : relative)
    if (part == "..") refuse("it leaves the folder");

  const fs::path path = folder / relative;
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) throw_error(ErrorCode::kNotFound, "cannot open folder '{}': {}", folder.string(), error.message());
  const fs::path target = fs::canonical(path, error);
  if (error) throw_error(ErrorCode::kNotFound, "cannot open '{}': {}", path.string(), error.message());
  const bool in_cache =
      root.parent_path().filename() == "snapshots" && is_inside(root.parent_path().parent_path() / "blobs", target);
  if (!is_inside(root, target) && !in_cache) refuse("it is a link to '" + target.string() + "', outside the folder");
  return target;
}

}  // namespace spyre
