// safetensors files: one header of JSON, then the tensors' bytes, densely packed.
//
// A SafetensorsFile does not change after opening and may be read from any number of threads. Tensors are read when
// they are asked for. The header is read whole and parsed without building a tree, so that memory stays below the
// file's own size. Everything is checked while opening: the header's length (at most 100 MiB) and nesting, names that
// stand twice, each shape against its byte range, and that the ranges cover the data exactly: no overlap, no hole,
// nothing behind the last.
//
// Errors: kCorruptData for a file that contradicts itself; kUnsupported for a dtype outside F64 F32 F16 BF16 I64 I32
// I16 I8 U8 BOOL. Both name the tensor and give the numbers.
//
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/export.h"
#include "formats/byte_source.h"

namespace spyre::formats {

struct SafetensorsTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // rank 0 to 8; a dimension may be 0
  uint64_t offset;             // of the data, from the start of the file
  uint64_t bytes;
};

class SPYRE_API SafetensorsFile {
 public:
  static std::unique_ptr<SafetensorsFile> open(const std::filesystem::path& path);
  // From memory that outlives the object; `name` stands in messages.
  static std::unique_ptr<SafetensorsFile> from_bytes(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in the header's order
  const SafetensorsTensor* find(std::string_view name) const;
  const ByteSource& bytes() const { return bytes_; }
  std::vector<std::byte> data(const SafetensorsTensor& tensor) const {
    return bytes_.read(tensor.offset, tensor.bytes);
  }

 private:
  SafetensorsFile() = default;
  void parse();
  void check_ranges(uint64_t data_start);

  std::string name_;
  ByteSource bytes_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint32_t> order_;  // by name
};

// `model.safetensors.index.json`: which file holds which tensor. Names are as written: pass each file through
// contained_path(). Metadata is skipped.
struct ShardIndex {
  std::vector<std::string> files;                            // each once
  std::vector<std::pair<std::string, uint32_t>> weight_map;  // tensor name, index into files; sorted by name
};

inline constexpr size_t kMaxShardIndexBytes = 64 << 20;

SPYRE_API ShardIndex parse_shard_index(std::string_view text, const std::string& name);

}  // namespace spyre::formats
