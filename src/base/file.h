// Files: reads at any place, bounded whole-file reads, and the check that a name found in a file stays in its folder.
//
// All three refuse what is not a regular file (a folder, a pipe, a device) with kInvalidArgument and name the path; a
// missing file is kNotFound. Nothing is mapped: what another process does to a file is an error here, never a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre {

// A regular file, open for reading. Movable, not copyable; it may be read from any number of threads at once.
//
// It stays the file that was opened when another one takes its name. One that is written in place meanwhile gives its
// new bytes, and one that is cut short an error.
class SPYRE_API InputFile {
 public:
  static InputFile open(const std::filesystem::path& path);

  InputFile() = default;  // no file: size 0
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Bytes [offset, offset + out.size()). Throws Error: kCorruptData when the file does not have them all,
  // kUnavailable when the system cannot read them; both name the path.
  void read(uint64_t offset, std::span<std::byte> out) const;

  // A hint to start reading ahead; never an error.
  void will_need(uint64_t offset, uint64_t length) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The whole file as bytes. A file longer than `max_bytes` is refused (kResourceExhausted, with both numbers) before any
// memory is taken.
SPYRE_API std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// `folder / name`, for a `name` that was read from a file and is therefore not trusted. Refused with kCorruptData: an
// empty or absolute name, a ".." component, a NUL byte, and a name whose target after following symbolic links lies
// outside `folder`. One layout of links is known and allowed: a Hugging Face cache keeps `snapshots/<revision>/<file>`
// as links into the `blobs` folder beside `snapshots`. The file must exist (kNotFound).
SPYRE_API std::filesystem::path contained_path(const std::filesystem::path& folder, std::string_view name);

}  // namespace spyre
