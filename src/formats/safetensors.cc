#include "formats/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "formats/bytes.h"
#include "formats/foreign.h"
#include "formats/name_index.h"

namespace spyre::formats {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100 << 20;  // the reference implementation's limit
constexpr size_t kMaxTensors = 1 << 18;          // per file; the largest published models have about 100,000 in all
constexpr size_t kMaxIndexedTensors = 1 << 19;
constexpr size_t kMaxShards = 1 << 14;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 8;

constexpr std::string_view kSupported = "F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL";

std::optional<DType> dtype_of(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kTable[] = {
      {"F64", DType::kF64}, {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"I64", DType::kI64},
      {"I32", DType::kI32}, {"I16", DType::kI16}, {"I8", DType::kI8},   {"U8", DType::kU8},     {"BOOL", DType::kBool}};
  for (const auto& [known, dtype] : kTable)
    if (known == name) return dtype;
  return std::nullopt;
}

// What both SAX readers share: refusing by name. nlohmann's SAX interface wants every event; returning true goes on.
class Sax {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit Sax(const std::string& file) : file_(file) {}

  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) {
    corrupt("broken JSON at byte {} near '{}'", position, printable(token, 40));
  }
  bool binary(binary_t&) { corrupt("binary value in JSON"); }

 protected:
  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kCorruptData, file_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& file_;
};

// { "__metadata__": {string: string}, name: {"dtype": string, "shape": [n...], "data_offsets": [begin, end]}, ... }
class HeaderReader : public Sax {
 public:
  HeaderReader(const std::string& file, std::vector<SafetensorsTensor>& out) : Sax(file), out_(out) {}

  bool start_object(size_t) {
    if (place_ == Place::kStart) return go(Place::kTop);
    if (place_ != Place::kTop) refuse("an object");
    if (name_ == "__metadata__") {
      if (std::exchange(seen_metadata_, true)) corrupt("'__metadata__' stands twice");
      return go(Place::kMetadata);
    }
    if (out_.size() == kMaxTensors) corrupt("more than {} tensors", kMaxTensors);
    tensor_ = {};
    tensor_.name = name_;
    seen_dtype_ = seen_shape_ = false;
    offsets_.clear();
    return go(Place::kTensor);
  }

  bool end_object() {
    if (place_ == Place::kTensor) {
      if (!seen_dtype_) corrupt("tensor '{}' has no dtype", printable(name_));
      if (!seen_shape_) corrupt("tensor '{}' has no shape", printable(name_));
      if (offsets_.size() != 2)
        corrupt("tensor '{}': data_offsets has {} numbers, not 2", printable(name_), offsets_.size());
      if (offsets_[1] < offsets_[0])
        corrupt("tensor '{}': data_offsets [{}, {}] run backwards", printable(name_), offsets_[0], offsets_[1]);
      tensor_.offset = offsets_[0];
      tensor_.bytes = offsets_[1] - offsets_[0];
      out_.push_back(std::move(tensor_));
    }
    return go(place_ == Place::kTop ? Place::kEnd : Place::kTop);
  }

  bool key(string_t& text) {
    if (place_ == Place::kTop) {
      if (text.size() > kMaxNameBytes)
        corrupt("tensor '{}': the name is {} bytes long, at most {} are allowed", printable(text), text.size(),
                kMaxNameBytes);
      name_ = text;
    } else if (place_ == Place::kTensor) {
      field_ = text == "dtype" ? Field::kDtype : text == "shape" ? Field::kShape : Field::kOffsets;
      if (field_ == Field::kOffsets && text != "data_offsets")
        corrupt("tensor '{}': unknown field '{}'", printable(name_), printable(text));
      if ((field_ == Field::kDtype && seen_dtype_) || (field_ == Field::kShape && seen_shape_) ||
          (field_ == Field::kOffsets && !offsets_.empty()))
        corrupt("tensor '{}': field '{}' stands twice", printable(name_), printable(text));
    }
    return true;
  }

  bool string(string_t& text) {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != Field::kDtype) refuse("a string");
    const auto dtype = dtype_of(text);
    if (!dtype)
      throw_error(ErrorCode::kUnsupported, "{}: tensor '{}' has dtype '{}'; read are {}", file_, printable(name_),
                  printable(text), kSupported);
    tensor_.dtype = *dtype;
    return seen_dtype_ = true;
  }

  bool start_array(size_t) {
    if (place_ != Place::kTensor || field_ == Field::kDtype) refuse("an array");
    return go(Place::kArray);
  }
  bool end_array() {
    if (field_ == Field::kShape) seen_shape_ = true;
    return go(Place::kTensor);
  }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ != Place::kArray) refuse(fmt::format("the number {}", value));
    if (field_ == Field::kShape) {
      if (tensor_.shape.size() == kMaxRank) corrupt("tensor '{}': more than {} dimensions", printable(name_), kMaxRank);
      if (value > static_cast<uint64_t>(INT64_MAX))
        corrupt("tensor '{}': dimension {} is past 2^63 - 1", printable(name_), value);
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_.size() == 2) corrupt("tensor '{}': data_offsets has more than 2 numbers", printable(name_));
      offsets_.push_back(value);
    }
    return true;
  }
  bool number_integer(number_integer_t value) { refuse(fmt::format("the negative number {}", value)); }
  bool number_float(number_float_t, const string_t& text) { refuse("the number " + printable(text, 40)); }
  bool boolean(bool value) { refuse(value ? "true" : "false"); }
  bool null() { refuse("null"); }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kArray, kEnd };
  enum class Field { kDtype, kShape, kOffsets };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    switch (place_) {
      case Place::kStart:
      case Place::kEnd:
        corrupt("the header is {}, not an object", what);
      case Place::kTop:
        corrupt("tensor '{}' is {}, not an object", printable(name_), what);
      case Place::kMetadata:
        corrupt("'__metadata__' holds {}; only strings are allowed", what);
      default:
        corrupt("tensor '{}': {} cannot be {}", printable(name_), kFields[static_cast<int>(field_)], what);
    }
  }

  std::vector<SafetensorsTensor>& out_;
  Place place_ = Place::kStart;
  Field field_ = Field::kDtype;
  std::string name_;
  SafetensorsTensor tensor_;
  std::vector<uint64_t> offsets_;
  bool seen_dtype_ = false, seen_shape_ = false, seen_metadata_ = false;
};

// { "metadata": anything, "weight_map": {name: file, ...} }
class IndexReader : public Sax {
 public:
  IndexReader(const std::string& file, ShardIndex& out) : Sax(file), out_(out) {}
  bool complete() const { return seen_map_; }

  bool start_object(size_t) { return enter("an object"); }
  bool end_object() { return leave(); }
  bool start_array(size_t) { return depth_ == 0 ? wrong("an array") : enter("an array"); }
  bool end_array() { return leave(); }

  bool key(string_t& text) {
    if (depth_ == 1) {
      in_map_ = text == "weight_map";
      if (in_map_ && std::exchange(seen_map_, true)) corrupt("'weight_map' stands twice");
    } else if (in_map_) {
      if (text.size() > kMaxNameBytes)
        corrupt("tensor '{}': the name is {} bytes long, at most {} are allowed", printable(text), text.size(),
                kMaxNameBytes);
      name_ = text;
    }
    return true;
  }
  bool string(string_t& text) {
    if (!(in_map_ && depth_ == 2)) return scalar("a string");
    if (out_.weight_map.size() == kMaxIndexedTensors) corrupt("more than {} tensors", kMaxIndexedTensors);
    if (text.size() > kMaxNameBytes)
      corrupt("tensor '{}': the file name is {} bytes long, at most {} are allowed", printable(name_), text.size(),
              kMaxNameBytes);
    auto found = files_.find(text);
    if (found == files_.end()) {
      if (out_.files.size() == kMaxShards) corrupt("more than {} files", kMaxShards);
      found = files_.emplace(text, static_cast<uint32_t>(out_.files.size())).first;
      out_.files.push_back(text);
    }
    out_.weight_map.emplace_back(name_, found->second);
    return true;
  }
  bool number_unsigned(number_unsigned_t) { return scalar("a number"); }
  bool number_integer(number_integer_t) { return scalar("a number"); }
  bool number_float(number_float_t, const string_t&) { return scalar("a number"); }
  bool boolean(bool) { return scalar("a bool"); }
  bool null() { return scalar("null"); }

 private:
  bool enter(std::string_view what) {
    if (in_map_ && depth_ == 2) wrong(what);
    if (in_map_ && depth_ == 1 && what != "an object") wrong(what);
    if (depth_ == 64) corrupt("JSON nested deeper than 64");
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool scalar(std::string_view what) { return depth_ == 0 || in_map_ ? wrong(what) : true; }
  [[noreturn]] bool wrong(std::string_view what) const {
    if (depth_ == 0) corrupt("the index is {}, not an object", what);
    if (depth_ == 1) corrupt("'weight_map' is {}, not an object", what);
    corrupt("tensor '{}': its file is {}, not a string", printable(name_), what);
  }

  ShardIndex& out_;
  std::map<std::string, uint32_t, std::less<>> files_;
  std::string name_;
  int depth_ = 0;
  bool in_map_ = false, seen_map_ = false;
};

template <typename Reader>
void parse_strict(std::string_view text, const std::string& name, Reader& reader) {
  refuse_foreign(text, name);
  // The parser takes a NUL for the end of the text and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw_error(ErrorCode::kCorruptData, "{}: broken JSON: NUL at byte {}", name, nul);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
}

}  // namespace

std::unique_ptr<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->name_ = path.string();
  file->bytes_ = ByteSource(InputFile::open(path));
  file->parse();
  return file;
}

std::unique_ptr<SafetensorsFile> SafetensorsFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->name_ = std::move(name);
  file->bytes_ = ByteSource(bytes);
  file->parse();
  return file;
}

void SafetensorsFile::parse() {
  const uint64_t size = bytes_.size();
  if (size < 8) throw_error(ErrorCode::kCorruptData, "{}: {} bytes are too few for a safetensors file", name_, size);
  const std::vector<std::byte> head = bytes_.read(0, std::min<uint64_t>(size, kForeignHeadBytes));
  const auto length = load_le<uint64_t>(head.data());
  if (length > size - 8 || length > kMaxHeaderBytes) {
    refuse_foreign(as_text(head), name_);
    throw_error(ErrorCode::kCorruptData, "{}: a header of {} bytes in a file of {} (at most {} are read)", name_,
                length, size, kMaxHeaderBytes);
  }
  const std::vector<std::byte> text = bytes_.read(8, length);
  const std::string_view header = as_text(text);
  if (header.empty() || header.front() != '{') {
    refuse_foreign(as_text(head), name_);
    throw_error(ErrorCode::kCorruptData, "{}: the header does not begin with '{{'", name_);
  }
  HeaderReader reader(name_, tensors_);
  parse_strict(header, name_, reader);
  if (const auto twice = sort_by_name(tensors_, &SafetensorsTensor::name, order_))
    throw_error(ErrorCode::kCorruptData, "{}: tensor '{}' stands twice", name_, *twice);
  // Offsets count from the end of the header; from here on they count from the start of the file.
  const uint64_t start = 8 + length;
  for (SafetensorsTensor& t : tensors_) {
    uint64_t begin = 0, end = 0;
    if (!add(start, t.offset, begin) || !add(begin, t.bytes, end) || end > size)
      throw_error(ErrorCode::kCorruptData,
                  "{}: tensor '{}': data start {} + offset {} + {} bytes is past the end {} of the file", name_,
                  printable(t.name), start, t.offset, t.bytes, size);
    t.offset = begin;
  }
  check_ranges(start);
}

void SafetensorsFile::check_ranges(uint64_t data_start) {
  for (const SafetensorsTensor& t : tensors_) {
    uint64_t wanted = size_of(t.dtype);
    bool empty = false;
    for (int64_t d : t.shape) empty |= d == 0;
    for (int64_t d : t.shape)
      if (!empty && !multiply(wanted, static_cast<uint64_t>(d), wanted))
        throw_error(ErrorCode::kCorruptData, "{}: tensor '{}': shape [{}] makes more than 2^64 bytes", name_,
                    printable(t.name), fmt::join(t.shape, ", "));
    if (empty) wanted = 0;
    if (wanted != t.bytes)
      throw_error(ErrorCode::kCorruptData, "{}: tensor '{}': shape [{}] of {} takes {} bytes, data_offsets give {}",
                  name_, printable(t.name), fmt::join(t.shape, ", "), to_string(t.dtype), wanted, t.bytes);
  }
  std::vector<uint32_t> by_offset(tensors_.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(tensors_[a].offset, tensors_[a].bytes) < std::pair(tensors_[b].offset, tensors_[b].bytes);
  });
  uint64_t covered = data_start;
  const SafetensorsTensor* before = nullptr;
  for (uint32_t index : by_offset) {
    const SafetensorsTensor& t = tensors_[index];
    if (t.offset < covered)
      throw_error(ErrorCode::kCorruptData, "{}: tensors '{}' and '{}' overlap at byte {} (the first ends at {})", name_,
                  printable(before ? before->name : "header"), printable(t.name), t.offset, covered);
    if (t.offset > covered)
      throw_error(ErrorCode::kCorruptData, "{}: a hole of {} bytes at {}, before tensor '{}'", name_,
                  t.offset - covered, covered, printable(t.name));
    covered = t.offset + t.bytes;
    before = &t;
  }
  if (covered != bytes_.size())
    throw_error(ErrorCode::kCorruptData, "{}: {} bytes from {} to the end belong to no tensor", name_,
                bytes_.size() - covered, covered);
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const uint32_t* found = find_by_name(tensors_, &SafetensorsTensor::name, order_, name);
  return found ? &tensors_[*found] : nullptr;
}

ShardIndex parse_shard_index(std::string_view text, const std::string& name) {
  if (text.size() > kMaxShardIndexBytes)
    throw_error(ErrorCode::kResourceExhausted, "{} has {} bytes; at most {} are read", name, text.size(),
                kMaxShardIndexBytes);
  ShardIndex index;
  IndexReader reader(name, index);
  parse_strict(text, name, reader);
  if (!reader.complete()) throw_error(ErrorCode::kCorruptData, "{}: there is no 'weight_map'", name);
  std::sort(index.weight_map.begin(), index.weight_map.end());
  for (size_t i = 1; i < index.weight_map.size(); ++i)
    if (index.weight_map[i - 1].first == index.weight_map[i].first)
      throw_error(ErrorCode::kCorruptData, "{}: tensor '{}' stands twice", name, printable(index.weight_map[i].first));
  return index;
}

}  // namespace spyre::formats
