// Files: read-only mappings, bounded whole-file reads, and the check that a name found in a file stays in its folder.
//
// All three refuse what is not a regular file (a folder, a pipe, a device) with kInvalidArgument and name the path; a
// missing file is kNotFound.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre {

// A whole file mapped read-only and private. Movable, not copyable; the mapping lives as long as the object and may be
// read from any number of threads. An empty file maps to an empty span.
//
// Another process that truncates the file while it is mapped makes later reads fault (SIGBUS): model files are replaced
// by renaming, never written in place.
class SPYRE_API MappedFile {
 public:
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

  // Hints to the kernel about [offset, offset + length), clamped to the file; never an error.
  // will_need: start reading ahead. done_with: the pages may leave this process (they stay in the page cache).
  void will_need(size_t offset, size_t length) const;
  void done_with(size_t offset, size_t length) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
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
