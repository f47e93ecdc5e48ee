#include "formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "formats/bytes.h"
#include "formats/dequantize.h"
#include "formats/foreign.h"
#include "formats/name_index.h"

namespace spyre::formats {
namespace {

// Limits that no real file comes near. They bound what is allocated while a file is still a suspect: 65,536 keys and
// 262,144 tensors take under 64 MiB; an array of strings takes 8 bytes for each string's at least 8 bytes in the file.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 18;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr uint64_t kMaxNameBytes = 64;    // likewise
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxHeadBytes = 1 << 30;
constexpr uint64_t kFirstHeadBytes = 1 << 20;  // SmolLM2's head takes 1.8 MB, a vocabulary of 256k about 15

constexpr uint32_t kTypeCount = 13;

// Bytes per scalar; 0 for strings and arrays.
constexpr uint64_t size_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool is_integer(GgufType type) {
  return size_of(type) != 0 && type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool;
}

int64_t load_int(GgufType type, const std::byte* p, const std::string& file, std::string_view key) {
  switch (type) {
    case GgufType::kU8:
      return load_le<uint8_t>(p);
    case GgufType::kI8:
      return load_le<int8_t>(p);
    case GgufType::kBool:
      return load_le<uint8_t>(p) != 0;
    case GgufType::kU16:
      return load_le<uint16_t>(p);
    case GgufType::kI16:
      return load_le<int16_t>(p);
    case GgufType::kU32:
      return load_le<uint32_t>(p);
    case GgufType::kI32:
      return load_le<int32_t>(p);
    case GgufType::kI64:
      return load_le<int64_t>(p);
    case GgufType::kU64: {
      const auto value = load_le<uint64_t>(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        throw_error(ErrorCode::kCorruptData, "{}: key '{}': {} is past 2^63 - 1", file, printable(key), value);
      return static_cast<int64_t>(value);
    }
    default:
      throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not an integer", file, printable(key), to_string(type));
  }
}

double load_float(GgufType type, const std::byte* p, const std::string& file, std::string_view key) {
  if (type == GgufType::kF32) return load_le<float>(p);
  if (type == GgufType::kF64) return load_le<double>(p);
  if (type == GgufType::kU64) return static_cast<double>(load_le<uint64_t>(p));
  if (!is_integer(type))
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not a number", file, printable(key), to_string(type));
  return static_cast<double>(load_int(type, p, file, key));
}

// The head of the file goes on behind what was read of it.
struct HeadIsLonger {};

// Reads forward; every step is checked against the end of the file, and of what was read of it. Errors name the file
// and what was being read.
class Cursor {
 public:
  Cursor(std::span<const std::byte> head, uint64_t size, const std::string& file)
      : bytes_(head), size_(size), file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }

  void need(uint64_t n, std::string_view what) const {
    if (n > remaining())
      throw_error(ErrorCode::kCorruptData, "{}: {} needs {} bytes at {}, past the end {} of the file", file_,
                  printable(what), n, position_, size_);
    if (n > bytes_.size() - position_) throw HeadIsLonger();
  }
  void skip(uint64_t n, std::string_view what) {
    need(n, what);
    position_ += n;
  }
  template <typename T>
  T number(std::string_view what) {
    need(sizeof(T), what);
    const T value = load_le<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return value;
  }
  std::string_view string(std::string_view what, uint64_t max = std::numeric_limits<uint64_t>::max()) {
    const auto length = number<uint64_t>(what);
    if (length > max)
      throw_error(ErrorCode::kCorruptData, "{}: {} at {} is {} bytes long; at most {} are allowed", file_,
                  printable(what), position_ - 8, length, max);
    need(length, what);
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += length;
    return {text, static_cast<size_t>(length)};
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t size_;
  const std::string& file_;
  uint64_t position_ = 0;
};

}  // namespace

std::string_view to_string(GgufType type) {
  static constexpr std::string_view kNames[kTypeCount] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                          "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

struct GgufParser {
  GgufFile& file;
  Cursor in;

  explicit GgufParser(GgufFile& f) : file(f), in(f.head_, f.bytes_.size(), f.name_) {}

  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kCorruptData, file.name_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void parse() {
    const auto [keys, tensors] = header();
    file.keys_.reserve(keys);
    for (uint64_t i = 0; i < keys; ++i) key(i);
    if (auto twice = sort_by_name(file.keys_, &GgufKey::key, file.key_order_)) corrupt("key '{}' stands twice", *twice);
    alignment();
    file.tensors_.reserve(tensors);
    for (uint64_t i = 0; i < tensors; ++i) tensor(i);
    if (auto twice = sort_by_name(file.tensors_, &GgufTensor::name, file.tensor_order_))
      corrupt("tensor '{}' stands twice", *twice);
    place();
  }

  // Magic, version, counts. A count is believed only as far as the file has room for that many.
  std::pair<uint64_t, uint64_t> header() {
    const std::string_view head = as_text(file.head_);
    if (!head.starts_with("GGUF")) {
      refuse_foreign(head, file.name_);
      if (head.size() > 8 && head[8] == '{')
        corrupt("a safetensors file: name the folder that it is in, with config.json");
      corrupt("not a GGUF file (no 'GGUF' at its start)");
    }
    in.skip(4, "magic");
    file.version_ = in.number<uint32_t>("version");
    if (file.version_ != 0 && (file.version_ & 0xffff) == 0)
      throw_error(ErrorCode::kUnsupported,
                  "{}: a big-endian GGUF file (version word 0x{:08x}); only little-endian is read", file.name_,
                  file.version_);
    if (file.version_ == 1)
      throw_error(ErrorCode::kUnsupported, "{}: GGUF version 1 (32-bit lengths); versions 2 and 3 are read",
                  file.name_);
    if (file.version_ != 2 && file.version_ != 3)
      throw_error(ErrorCode::kUnsupported, "{}: GGUF version {}; versions 2 and 3 are read", file.name_, file.version_);
    const auto tensors = in.number<uint64_t>("tensor count");
    const auto keys = in.number<uint64_t>("key count");
    // The shortest key: length 8, name 1, type 4, value 1. The shortest tensor: 8 + 1, rank 4, one dim 8, type 4,
    // offset 8.
    if (keys > kMaxKeys || keys > in.remaining() / 14)
      corrupt("{} keys in a file of {} bytes (at most {} are read)", keys, file.bytes_.size(), kMaxKeys);
    if (tensors > kMaxTensors || tensors > in.remaining() / 33)
      corrupt("{} tensors in a file of {} bytes (at most {} are read)", tensors, file.bytes_.size(), kMaxTensors);
    return {keys, tensors};
  }

  GgufType type(std::string_view key) {
    const auto number = in.number<uint32_t>("value type");
    if (number >= kTypeCount) corrupt("key '{}': value type {} is unknown", printable(key), number);
    return static_cast<GgufType>(number);
  }

  void key(uint64_t index) {
    GgufKey entry{};
    entry.key = in.string("key name", kMaxKeyBytes);
    if (entry.key.empty()) corrupt("key {} has an empty name", index);
    entry.type = type(entry.key);
    entry.offset = in.position();
    if (entry.type == GgufType::kArray) {
      entry.array = static_cast<uint32_t>(file.arrays_.size());
      file.arrays_.push_back(array(entry.key, 1));
    } else if (entry.type == GgufType::kString) {
      in.string(entry.key);
    } else {
      in.skip(size_of(entry.type), entry.key);
    }
    file.keys_.push_back(entry);
  }

  // Walks over an array, checking it; the outermost one gets its table of strings.
  GgufArray array(std::string_view key, int depth) {
    GgufArray out;
    out.file_ = &file.name_;
    out.key_ = key;
    out.type_ = type(key);
    const auto count = in.number<uint64_t>(key);
    const uint64_t scalar = size_of(out.type_);
    const uint64_t least = scalar ? scalar : out.type_ == GgufType::kString ? 8 : 12;
    if (count > in.remaining() / least)
      corrupt("key '{}': an array of {} x {} at {} is past the end {} of the file", printable(key), count,
              to_string(out.type_), in.position(), file.bytes_.size());
    in.need(count * least, key);
    out.size_ = count;
    if (scalar) {
      out.data_ = file.head_.data() + in.position();
      in.skip(count * scalar, key);
    } else if (out.type_ == GgufType::kString) {
      out.data_ = file.head_.data();
      std::vector<uint64_t> offsets;
      if (depth == 1) offsets.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        if (depth == 1) offsets.push_back(in.position());
        in.string(key);
      }
      if (depth == 1) {
        file.string_offsets_.push_back(std::move(offsets));
        out.offsets_ = file.string_offsets_.back().data();
      }
    } else {
      if (depth == kMaxArrayDepth) corrupt("key '{}': arrays nested deeper than {}", printable(key), kMaxArrayDepth);
      for (uint64_t i = 0; i < count; ++i) array(key, depth + 1);
    }
    return out;
  }

  void alignment() {
    const GgufKey* entry = file.find_key("general.alignment");
    if (!entry) return;
    if (entry->type != GgufType::kU32) corrupt("key 'general.alignment' is {}, not u32", to_string(entry->type));
    file.alignment_ = load_le<uint32_t>(file.head_.data() + entry->offset);
    const uint64_t a = file.alignment_;
    if (a == 0 || a > kMaxAlignment || (a & (a - 1)) != 0)
      corrupt("general.alignment {} is no power of two up to {}", a, kMaxAlignment);
  }

  void tensor(uint64_t index) {
    GgufTensor t{};
    t.name = in.string("tensor name", kMaxNameBytes);
    if (t.name.empty()) corrupt("tensor {} has an empty name", index);
    t.rank = in.number<uint32_t>(t.name);
    if (t.rank < 1 || t.rank > 4) corrupt("tensor '{}': rank {} is not 1 to 4", printable(t.name), t.rank);
    t.dims = {1, 1, 1, 1};
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t.rank; ++d) {
      t.dims[d] = in.number<uint64_t>(t.name);
      if (t.dims[d] == 0) corrupt("tensor '{}': dimension {} is 0", printable(t.name), d);
      if (!multiply(elements, t.dims[d], elements) || elements > (uint64_t{1} << 62))
        corrupt("tensor '{}': dimension {} of {} makes more than 2^62 elements", printable(t.name), d, t.dims[d]);
    }
    t.type = in.number<uint32_t>(t.name);
    t.offset = in.number<uint64_t>(t.name);
    const GgmlTypeInfo* info = find_ggml_type(t.type);
    if (!info)
      throw_error(ErrorCode::kUnsupported, "{}: tensor '{}' has the unknown type number {}; weights are read from {}",
                  file.name_, printable(t.name), t.type, dequantizable_types());
    if (t.dims[0] % info->block != 0)
      corrupt("tensor '{}': rows of {} are no multiple of the {} of a {} block", printable(t.name), t.dims[0],
              info->block, info->name);
    if (!multiply(elements / info->block, info->bytes, t.bytes))
      corrupt("tensor '{}': {} elements of {} take more than 2^64 bytes", printable(t.name), elements, info->name);
    file.tensors_.push_back(t);
  }

  // Offsets count from the first aligned byte behind the infos; each must be aligned, inside, and nobody else's.
  void place() {
    if (file.tensors_.empty()) return;
    const uint64_t start = (in.position() + file.alignment_ - 1) / file.alignment_ * file.alignment_;
    const uint64_t size = file.bytes_.size();
    for (GgufTensor& t : file.tensors_) {
      uint64_t begin = 0, end = 0;
      if (t.offset % file.alignment_ != 0)
        corrupt("tensor '{}': offset {} is no multiple of the alignment {}", printable(t.name), t.offset,
                file.alignment_);
      if (!add(start, t.offset, begin) || !add(begin, t.bytes, end) || end > size)
        corrupt("tensor '{}': data start {} + offset {} + {} bytes is past the end {} of the file", printable(t.name),
                start, t.offset, t.bytes, size);
      t.offset = begin;
    }
    std::vector<uint32_t> order(file.tensors_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return file.tensors_[a].offset < file.tensors_[b].offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &a = file.tensors_[order[i - 1]], &b = file.tensors_[order[i]];
      if (a.offset + a.bytes > b.offset)
        corrupt("tensors '{}' [{}, {}) and '{}' [{}, {}) overlap", printable(a.name), a.offset, a.offset + a.bytes,
                printable(b.name), b.offset, b.offset + b.bytes);
    }
  }
};

std::string_view GgufArray::string_at(size_t i) const {
  SPYRE_CHECK(i < size_, "element {} of {}", i, size_);
  if (!offsets_)
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is an array of {}, not of strings", *file_, printable(key_),
                to_string(type_));
  const std::byte* at = data_ + offsets_[i];
  return {reinterpret_cast<const char*>(at + 8), static_cast<size_t>(load_le<uint64_t>(at))};
}

int64_t GgufArray::int_at(size_t i) const {
  SPYRE_CHECK(i < size_, "element {} of {}", i, size_);
  return load_int(type_, data_ + i * size_of(type_), *file_, key_);
}

double GgufArray::float_at(size_t i) const {
  SPYRE_CHECK(i < size_, "element {} of {}", i, size_);
  return load_float(type_, data_ + i * size_of(type_), *file_, key_);
}

// How long the head is says only the head, so it is read in growing pieces and parsed until it is all there.
std::unique_ptr<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  ByteSource source(InputFile::open(path));
  for (uint64_t length = kFirstHeadBytes; length <= kMaxHeadBytes; length *= 2) {
    std::unique_ptr<GgufFile> file(new GgufFile);
    file->name_ = path.string();
    file->bytes_ = std::move(source);
    file->read_ = file->bytes_.read(0, std::min(length, file->bytes_.size()));
    file->head_ = file->read_;
    try {
      GgufParser(*file).parse();
      return file;
    } catch (const HeadIsLonger&) {
      source = std::move(file->bytes_);
    }
  }
  throw_error(ErrorCode::kResourceExhausted, "{}: keys and tensor infos take more than {} bytes", path.string(),
              kMaxHeadBytes);
}

std::unique_ptr<GgufFile> GgufFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->name_ = std::move(name);
  file->bytes_ = ByteSource(bytes);
  file->head_ = bytes;
  GgufParser(*file).parse();
  return file;
}

const GgufKey* GgufFile::find_key(std::string_view key) const {
  const uint32_t* found = find_by_name(keys_, &GgufKey::key, key_order_, key);
  return found ? &keys_[*found] : nullptr;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const uint32_t* found = find_by_name(tensors_, &GgufTensor::name, tensor_order_, name);
  return found ? &tensors_[*found] : nullptr;
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufKey* entry = find_key(key);
  if (!entry) return std::nullopt;
  if (entry->type != GgufType::kString)
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not a string", name_, key, to_string(entry->type));
  const std::byte* at = head_.data() + entry->offset;
  return std::string_view(reinterpret_cast<const char*>(at + 8), static_cast<size_t>(load_le<uint64_t>(at)));
}

std::optional<int64_t> GgufFile::get_int(std::string_view key) const {
  const GgufKey* entry = find_key(key);
  if (!entry) return std::nullopt;
  if (!is_integer(entry->type))
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not an integer", name_, key, to_string(entry->type));
  return load_int(entry->type, head_.data() + entry->offset, name_, key);
}

std::optional<double> GgufFile::get_float(std::string_view key) const {
  const GgufKey* entry = find_key(key);
  if (!entry) return std::nullopt;
  return load_float(entry->type, head_.data() + entry->offset, name_, key);
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufKey* entry = find_key(key);
  if (!entry) return std::nullopt;
  if (entry->type != GgufType::kBool)
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not a bool", name_, key, to_string(entry->type));
  return load_le<uint8_t>(head_.data() + entry->offset) != 0;
}

std::optional<GgufArray> GgufFile::get_array(std::string_view key) const {
  const GgufKey* entry = find_key(key);
  if (!entry) return std::nullopt;
  if (entry->type != GgufType::kArray)
    throw_error(ErrorCode::kCorruptData, "{}: key '{}' is {}, not an array", name_, key, to_string(entry->type));
  return arrays_[entry->array];
}

GgufTokenizerKeys GgufFile::tokenizer() const {
  enum class Kind { kStrings, kIntegers, kFloats };
  const auto array = [&](std::string_view key, Kind kind) {
    GgufArray values = get_array(key).value_or(GgufArray());
    const GgufType type = values.element_type();
    const bool fits = kind == Kind::kStrings    ? type == GgufType::kString
                      : kind == Kind::kIntegers ? is_integer(type)
                                                : type == GgufType::kF32 || type == GgufType::kF64;
    if (!values.empty() && !fits)
      throw_error(ErrorCode::kCorruptData, "{}: key '{}' is an array of {}, not of {}", name_, key, to_string(type),
                  kind == Kind::kStrings    ? "strings"
                  : kind == Kind::kIntegers ? "integers"
                                            : "floats");
    return values;
  };
  GgufTokenizerKeys keys;
  keys.model = get_string("tokenizer.ggml.model").value_or("");
  keys.pre = get_string("tokenizer.ggml.pre").value_or("");
  keys.tokens = array("tokenizer.ggml.tokens", Kind::kStrings);
  keys.token_types = array("tokenizer.ggml.token_type", Kind::kIntegers);
  keys.scores = array("tokenizer.ggml.scores", Kind::kFloats);
  keys.merges = array("tokenizer.ggml.merges", Kind::kStrings);
  keys.bos_id = get_int("tokenizer.ggml.bos_token_id");
  keys.eos_id = get_int("tokenizer.ggml.eos_token_id");
  keys.eot_id = get_int("tokenizer.ggml.eot_token_id");
  keys.eom_id = get_int("tokenizer.ggml.eom_token_id");
  keys.unknown_id = get_int("tokenizer.ggml.unknown_token_id");
  keys.separator_id = get_int("tokenizer.ggml.seperator_token_id");  // the format's own spelling
  if (!keys.separator_id) keys.separator_id = get_int("tokenizer.ggml.separator_token_id");
  keys.padding_id = get_int("tokenizer.ggml.padding_token_id");
  keys.mask_id = get_int("tokenizer.ggml.mask_token_id");
  keys.add_bos = get_bool("tokenizer.ggml.add_bos_token");
  keys.add_eos = get_bool("tokenizer.ggml.add_eos_token");
  keys.add_space_prefix = get_bool("tokenizer.ggml.add_space_prefix");
  keys.chat_template = get_string("tokenizer.chat_template").value_or("");
  return keys;
}

}  // namespace spyre::formats
