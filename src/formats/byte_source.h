// The bytes of a model file: on disk, read when they are asked for, or in memory that outlives the object. May be read
// from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace spyre::formats {

class ByteSource {
 public:
  ByteSource() = default;  // no bytes
  explicit ByteSource(InputFile file) : file_(std::move(file)), size_(file_->size()) {}
  explicit ByteSource(std::span<const std::byte> memory) : memory_(memory.data()), size_(memory.size()) {}

  uint64_t size() const { return size_; }

  // Bytes [offset, offset + out.size()), which must lie within size(). Throws what InputFile::read() throws.
  void read(uint64_t offset, std::span<std::byte> out) const {
    SPYRE_CHECK(offset <= size_ && out.size() <= size_ - offset, "{} bytes at {} of {}", out.size(), offset, size_);
    if (out.empty()) return;
    if (file_) return file_->read(offset, out);
    std::memcpy(out.data(), memory_ + offset, out.size());
  }
  std::vector<std::byte> read(uint64_t offset, uint64_t count) const {
    std::vector<std::byte> out(count);
    read(offset, out);
    return out;
  }

  void will_need(uint64_t offset, uint64_t length) const {
    if (file_) file_->will_need(offset, length);
  }

 private:
  std::optional<InputFile> file_;
  const std::byte* memory_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace spyre::formats
