// GGUF files, version 2 and 3, little-endian: keys, tensor infos and where the data lies.
//
// Keys and tensor infos are read whole (at most 1 GiB) and kept: strings and arrays are views into them and live as
// long as the GgufFile. Tensors are read when they are asked for. Every length, count, type and offset is checked once,
// while opening; afterwards reads cannot leave the file, whatever becomes of it. A GgufFile does not change after
// opening and may be read from any number of threads.
//
// Errors: kCorruptData for a file that contradicts itself, kUnsupported for what is well-formed but not read here
// (version 1, big-endian, a tensor type with no known size). Opening does not ask whether tensors can be dequantised (a
// tokenizer can be taken from any file): `formats/dequantize.h` and `formats/checkpoint.h` do.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"
#include "formats/byte_source.h"

namespace spyre::formats {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

SPYRE_API std::string_view to_string(GgufType type);  // "u8", "string", ...

// An array value: a typed view. Elements are decoded when asked for; nothing is copied. Numbers lie packed (and
// unaligned) in the file. Strings are found through a table of their offsets, 8 bytes each, made while opening. Strings
// are bytes as stored: usually UTF-8, which nobody has checked.
class SPYRE_API GgufArray {
 public:
  GgufArray() = default;  // empty
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  GgufType element_type() const { return type_; }

  // REQUIRES: i < size(). Throws kCorruptData when the elements are of another kind (file and key are named): strings
  // for string_at; integers or bools for int_at (a u64 past 2^63 - 1 is refused); any number for float_at. Arrays of
  // arrays are checked while opening, but their elements cannot be read.
  std::string_view string_at(size_t i) const;
  int64_t int_at(size_t i) const;
  double float_at(size_t i) const;

 private:
  friend class GgufFile;
  friend struct GgufParser;
  const std::string* file_ = nullptr;  // its name, for messages
  std::string_view key_;
  GgufType type_ = GgufType::kU8;
  size_t size_ = 0;
  const std::byte* data_ = nullptr;    // numbers: the elements; strings: the start of the file
  const uint64_t* offsets_ = nullptr;  // strings: file offset of each length field
};

// One key. `key` and the views in it live as long as the file.
struct GgufKey {
  std::string_view key;
  GgufType type;
  uint64_t offset;     // of the value, in the file
  uint32_t array = 0;  // index into the file's arrays, for kArray
};

// A tensor info. `dims` is in ggml order: dims[0] is contiguous, so a [out, in] matrix has dims {in, out}.
struct GgufTensor {
  std::string_view name;
  uint32_t type;                 // a GgmlType (formats/dequantize.h); its size is known
  uint32_t rank;                 // 1 .. 4
  std::array<uint64_t, 4> dims;  // each >= 1; 1 past rank
  uint64_t offset;               // of the data, from the start of the file
  uint64_t bytes;
};

// The keys tokenizer.* as they stand; what is absent is empty.
struct GgufTokenizerKeys {
  std::string_view model;  // tokenizer.ggml.model: "gpt2", "llama", "bert", ...
  std::string_view pre;    // tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", ...
  GgufArray tokens;        // strings; the index is the id
  GgufArray token_types;   // integers: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  GgufArray scores;        // floats
  GgufArray merges;        // strings, "left right"
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, separator_id, padding_id, mask_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string_view chat_template;  // tokenizer.chat_template
};

class SPYRE_API GgufFile {
 public:
  static std::unique_ptr<GgufFile> open(const std::filesystem::path& path);
  // From memory that outlives the object; `name` stands in messages.
  static std::unique_ptr<GgufFile> from_bytes(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }  // the path, for messages
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const ByteSource& bytes() const { return bytes_; }

  // In file order.
  const std::vector<GgufKey>& keys() const { return keys_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufKey* find_key(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
  std::vector<std::byte> data(const GgufTensor& tensor) const { return bytes_.read(tensor.offset, tensor.bytes); }

  // A key's value; nothing when there is no such key. A value of another kind throws kCorruptData and names key and
  // type. get_int takes any integer type and get_float any number.
  std::optional<std::string_view> get_string(std::string_view key) const;
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<GgufArray> get_array(std::string_view key) const;

  // Types are checked: a `tokens` that is no array of strings throws. Ids are not checked against the vocabulary.
  GgufTokenizerKeys tokenizer() const;

 private:
  friend struct GgufParser;
  GgufFile() = default;

  std::string name_;
  ByteSource bytes_;
  std::vector<std::byte> read_;      // from the start of a file on disk: keys and tensor infos, and what follows
  std::span<const std::byte> head_;  // read_, or all of the memory
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufKey> keys_;
  std::vector<GgufTensor> tensors_;
  std::vector<GgufArray> arrays_;
  std::vector<std::vector<uint64_t>> string_offsets_;
  std::vector<uint32_t> key_order_, tensor_order_;  // indices sorted by name: no hash that a file could make collide
};

}  // namespace spyre::formats
