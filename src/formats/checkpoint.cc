#include "formats/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "formats/byte_source.h"
#include "formats/bytes.h"
#include "formats/dequantize.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/name_index.h"
#include "formats/safetensors.h"
#include "formats/tensor_names.h"

namespace spyre::formats {
namespace fs = std::filesystem;

// Both formats come down to this: contiguous elements, in blocks of a known size.
struct Checkpoint::Source {
  const ByteSource* bytes = nullptr;
  uint64_t offset = 0;
  uint32_t type = 0;   // a GGUF type number; safetensors dtypes have one too, but for U8 and BOOL, which have I8's
  uint32_t block = 1;  // elements
  uint32_t block_bytes = 0;
  int64_t head_rows = 0;  // rows per rotary head where Q/K rows are interleaved; 0: rows are in order
};

namespace {

constexpr uint64_t kChunk = 4096;           // elements; a multiple of every block size, 16 KiB as fp32
constexpr uint64_t kReadBytes = 64 * 1024;  // at once: at least a chunk of every type, and few calls of the system
constexpr uint32_t kF64 = 28;

bool is_readable_float(DType dtype) {
  return dtype == DType::kF32 || is_16bit_float(dtype);
}

uint32_t ggml_number(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kF64:
      return kF64;
    case DType::kI64:
      return 27;
    case DType::kI32:
      return 26;
    case DType::kI16:
      return 25;
    default:
      return 24;
  }
}

// Of the elements when they are read one by one; f32 stands for the blocks.
DType element_dtype(uint32_t type) {
  if (type == static_cast<uint32_t>(GgmlType::kF16)) return DType::kF16;
  if (type == static_cast<uint32_t>(GgmlType::kBF16)) return DType::kBF16;
  return DType::kF32;
}

std::string storage_name(DType dtype) {
  std::string name(to_string(dtype));
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// fp64 to fp32 rounding to odd: the last bit remembers that something was cut off, so that rounding again to 16 bits
// gives what one rounding from fp64 would. For an fp32 target the cast itself is the one rounding.
float round_to_odd(double value) {
  float near = static_cast<float>(value);
  if (!std::isfinite(near)) return near;
  if (static_cast<double>(near) == value) return near;
  if (std::abs(static_cast<double>(near)) > std::abs(value)) near = std::nextafter(near, 0.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(near) | 1u);
}

void widen(uint32_t type, const std::byte* data, uint64_t n, DType target, float* out) {
  if (type != kF64) return dequantize(type, data, n, out);
  for (uint64_t i = 0; i < n; ++i) {
    const auto value = load_le<double>(data + 8 * i);
    out[i] = target == DType::kF32 ? static_cast<float>(value) : round_to_odd(value);
  }
}

// Little-endian elements to this machine's byte order.
void to_native(std::byte* elements, uint64_t count, size_t size) {
  if constexpr (std::endian::native == std::endian::big) {
    for (uint64_t i = 0; i < count; ++i) std::reverse(elements + i * size, elements + (i + 1) * size);
  }
}

// Elements [skip, skip + count) of the whole blocks at `stored`; skip is less than a block.
void convert(uint32_t type, uint32_t block, uint32_t block_bytes, const std::byte* stored, uint64_t skip,
             uint64_t count, DType target, std::byte* out) {
  std::array<float, kChunk> chunk;
  while (count > 0) {
    const uint64_t take = std::min(count, kChunk - skip);
    const uint64_t blocks = (skip + take + block - 1) / block;
    widen(type, stored, blocks * block, target, chunk.data());
    narrow(chunk.data() + skip, take, target, out);
    stored += blocks * block_bytes;
    out += take * size_of(target);
    count -= take;
    skip = 0;
  }
}

}  // namespace

// An empty tensor may have any other dimensions; the product of all of a full one is bounded by its bytes.
int64_t TensorInfo::elements() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;

std::unique_ptr<Checkpoint> Checkpoint::open(const fs::path& model) {
  std::error_code error;
  const fs::file_status status = fs::status(model, error);
  if (!fs::exists(status))
    throw_error(ErrorCode::kNotFound, "model '{}' is neither a folder nor a .gguf file (models are not downloaded)",
                model.string());
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = model;
  if (fs::is_directory(status)) {
    checkpoint->open_folder(model);
  } else {
    checkpoint->folder_ = model.parent_path();
    checkpoint->add_gguf(GgufFile::open(model));
  }
  checkpoint->finish();
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::from_gguf(std::unique_ptr<GgufFile> file) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = file->name();
  checkpoint->add_gguf(std::move(file));
  checkpoint->finish();
  return checkpoint;
}

void Checkpoint::open_folder(const fs::path& folder) {
  folder_ = folder;
  // A name that cannot be followed (a ring of links, a folder that may not be searched) counts: opening it says why.
  const auto has = [&](const char* name) {
    std::error_code error;
    return fs::status(folder / name, error).type() != fs::file_type::not_found;
  };
  if (!has("config.json") && !has("model.safetensors") && !has("model.safetensors.index.json")) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".gguf") found.push_back(entry.path());
    if (found.size() == 1) return add_gguf(GgufFile::open(found[0]));
    if (found.size() > 1)
      throw_error(ErrorCode::kInvalidArgument, "'{}' has {} .gguf files: name the one to load", folder.string(),
                  found.size());
  }
  if (!has("config.json")) throw_error(ErrorCode::kNotFound, "'{}' has no config.json", folder.string());
  const fs::path config = folder / "config.json", generation = folder / "generation_config.json";
  config_ = parse_model_config(read_file(config, kMaxJsonBytes),
                               has("generation_config.json") ? read_file(generation, kMaxJsonBytes) : std::string(),
                               config.string(), generation.string());
  if (has("model.safetensors")) {
    shards_.push_back(SafetensorsFile::open(contained_path(folder, "model.safetensors")));
    for (const SafetensorsTensor& t : shards_[0]->tensors()) add_tensor(*shards_[0], t);
  } else if (has("model.safetensors.index.json")) {
    add_shards(folder / "model.safetensors.index.json");
  } else {
    throw_error(ErrorCode::kNotFound, "'{}' has neither model.safetensors nor model.safetensors.index.json{}",
                folder.string(),
                has("pytorch_model.bin") || has("pytorch_model.bin.index.json")
                    ? " (pytorch_model.bin is not read: convert it to safetensors)"
                    : "");
  }
}

// A tensor counts when the index names it, and must then be in the file the index says.
void Checkpoint::add_shards(const fs::path& path) {
  const ShardIndex index = parse_shard_index(read_file(path, kMaxShardIndexBytes), path.string());
  for (const std::string& file : index.files) shards_.push_back(SafetensorsFile::open(contained_path(folder_, file)));
  for (const auto& [name, file] : index.weight_map) {
    const SafetensorsTensor* tensor = shards_[file]->find(name);
    if (!tensor)
      throw_error(ErrorCode::kCorruptData, "{}: tensor '{}' is not in '{}'", path.string(), printable(name),
                  printable(index.files[file]));
    add_tensor(*shards_[file], *tensor);
  }
}

void Checkpoint::add_tensor(const SafetensorsFile& file, const SafetensorsTensor& t) {
  tensors_.push_back({t.name, t.shape, storage_name(t.dtype), t.dtype, t.bytes});
  sources_.push_back({.bytes = &file.bytes(),
                      .offset = t.offset,
                      .type = ggml_number(t.dtype),
                      .block_bytes = static_cast<uint32_t>(size_of(t.dtype))});
}

void Checkpoint::add_gguf(std::unique_ptr<GgufFile> file) {
  gguf_ = std::move(file);
  config_ = model_config_from_gguf(*gguf_);
  const GgufFamily& family = *find_gguf_family(config_.model_type);  // it was read
  for (const GgufTensor& t : gguf_->tensors()) {
    const GgmlTypeInfo& type = *find_ggml_type(t.type);
    const auto translated = translate_gguf_name(family, t.name, config_.num_hidden_layers);
    if (!translated)
      throw_error(ErrorCode::kUnsupported, "{}: tensor '{}' is not part of a '{}' model of {} layers", gguf_->name(),
                  printable(t.name), family.name, config_.num_hidden_layers);
    if (!can_dequantize(t.type))
      throw_error(ErrorCode::kUnsupported, "{}: tensor '{}' has type {} ({}); weights are read from {}", gguf_->name(),
                  printable(t.name), type.name, type.number, dequantizable_types());
    if (translated->name.empty()) continue;
    TensorInfo info{translated->name, {}, type.name, element_dtype(t.type), t.bytes, type.block};
    for (uint32_t d = t.rank; d-- > 0;) info.shape.push_back(static_cast<int64_t>(t.dims[d]));
    Source source{
        .bytes = &gguf_->bytes(), .offset = t.offset, .type = t.type, .block = type.block, .block_bytes = type.bytes};
    if (translated->order != RowOrder::kPlain) {
      const int64_t heads =
          translated->order == RowOrder::kQueryHeads ? config_.num_attention_heads : config_.num_key_value_heads;
      if (info.shape[0] != heads * config_.head_dim || config_.head_dim % 2 != 0)
        throw_error(ErrorCode::kCorruptData,
                    "{}: tensor '{}' has {} rows; {} heads of {} (an even number) are expected", gguf_->name(),
                    printable(t.name), info.shape[0], heads, config_.head_dim);
      source.head_rows = config_.head_dim;
    }
    tensors_.push_back(std::move(info));
    sources_.push_back(source);
  }
}

void Checkpoint::finish() {
  std::vector<uint32_t> order;
  if (const auto twice = sort_by_name(tensors_, &TensorInfo::name, order))
    throw_error(ErrorCode::kCorruptData, "'{}': tensor '{}' stands twice", path_.string(), *twice);
  std::vector<TensorInfo> tensors;
  std::vector<Source> sources;
  for (uint32_t index : order) {
    tensors.push_back(std::move(tensors_[index]));
    sources.push_back(sources_[index]);
  }
  tensors_ = std::move(tensors);
  sources_ = std::move(sources);

  if (config_.dtype || is_gguf()) return;
  std::array<uint64_t, 256> bytes{};
  for (const TensorInfo& t : tensors_)
    if (is_readable_float(t.dtype)) bytes[static_cast<size_t>(t.dtype)] += t.bytes;
  const auto most = std::max_element(bytes.begin(), bytes.end());
  if (*most) config_.dtype = static_cast<DType>(most - bytes.begin());
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const TensorInfo& t, std::string_view wanted) { return t.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

const Checkpoint::Source& Checkpoint::source_of(const TensorInfo& tensor) const {
  SPYRE_CHECK(&tensor >= tensors_.data() && &tensor < tensors_.data() + tensors_.size(),
              "'{}' is not a tensor of this checkpoint", tensor.name);
  return sources_[static_cast<size_t>(&tensor - tensors_.data())];
}

void Checkpoint::read(const TensorInfo& tensor, DType target, std::span<std::byte> out) const {
  read_rows(tensor, 0, tensor.rows(), target, out);
}

// The whole blocks that hold elements [first, first + count) of the file's order.
struct Checkpoint::Span {
  uint64_t offset = 0, bytes = 0;
};
Checkpoint::Span Checkpoint::span_of(const Source& source, uint64_t first, uint64_t count) {
  const uint64_t begin = first / source.block, end = (first + count + source.block - 1) / source.block;
  return {source.offset + begin * source.block_bytes, (end - begin) * source.block_bytes};
}

// Elements [first, first + count) of the file's order. `first` may lie inside a block.
void Checkpoint::read_range(const Source& source, uint64_t first, uint64_t count, DType target, std::byte* out) {
  std::array<std::byte, kReadBytes> stored;
  const size_t width = size_of(target);
  const uint64_t most = kReadBytes / source.block_bytes * source.block;
  while (count > 0) {
    const uint64_t skip = first % source.block;  // decoded, and thrown away
    const uint64_t take = std::min(count, most - skip);
    const Span span = span_of(source, first, take);
    source.bytes->read(span.offset, std::span(stored).first(span.bytes));
    convert(source.type, source.block, source.block_bytes, stored.data(), skip, take, target, out);
    first += take;
    count -= take;
    out += take * width;
  }
}

// Elements as they are stored, in this machine's byte order.
void Checkpoint::read_as_stored(const Source& source, uint64_t first, uint64_t count, size_t size, std::byte* out) {
  source.bytes->read(source.offset + first * size, {out, count * size});
  to_native(out, count, size);
}

// Rows [first_row, first_row + rows) of interleaved heads. The file is read forward, head by head, as many rows at once
// as there is room for; a row that was asked for goes to its place.
void Checkpoint::read_heads(const Source& source, bool as_stored, uint64_t width, uint64_t first_row, uint64_t rows,
                            DType target, std::byte* out) {
  const auto head = static_cast<uint64_t>(source.head_rows), half = head / 2, last_row = first_row + rows;
  const size_t row_size = width * size_of(target);
  const bool whole_blocks = width % source.block == 0;
  const uint64_t row_bytes = width / source.block * source.block_bytes;
  const uint64_t most = whole_blocks && row_bytes > 0 ? kReadBytes / row_bytes : 0;  // 0: row by row
  std::array<std::byte, kReadBytes> stored;
  for (uint64_t base = first_row / head * head; base < last_row; base += head) {
    for (uint64_t i = 0; i < head;) {
      const uint64_t count = std::clamp<uint64_t>(most, 1, head - i);
      if (most > 0) {
        const Span span = span_of(source, (base + i) * width, count * width);
        source.bytes->read(span.offset, std::span(stored).first(span.bytes));
      }
      for (uint64_t j = 0; j < count; ++j, ++i) {
        const uint64_t row = base + i % 2 * half + i / 2;
        if (row < first_row || row >= last_row) continue;
        std::byte* to = out + (row - first_row) * row_size;
        if (as_stored && most > 0) {
          std::memcpy(to, stored.data() + j * row_bytes, row_size);
          to_native(to, width, size_of(target));
        } else if (as_stored) {
          read_as_stored(source, (base + i) * width, width, size_of(target), to);
        } else if (most > 0) {
          convert(source.type, source.block, source.block_bytes, stored.data() + j * row_bytes, 0, width, target, to);
        } else {
          read_range(source, (base + i) * width, width, target, to);
        }
      }
    }
  }
}

std::pair<size_t, uint64_t> Checkpoint::place(const TensorInfo& tensor) const {
  const Source& source = source_of(tensor);
  const auto shard =
      std::find_if(shards_.begin(), shards_.end(), [&](const auto& file) { return &file->bytes() == source.bytes; });
  return {static_cast<size_t>(shard - shards_.begin()), source.offset};
}

void Checkpoint::will_need(const TensorInfo& tensor, int64_t first_row, int64_t rows) const {
  const Source& source = source_of(tensor);
  const auto width = static_cast<uint64_t>(tensor.row_elements());
  const Span span = span_of(source, static_cast<uint64_t>(first_row) * width, static_cast<uint64_t>(rows) * width);
  source.bytes->will_need(span.offset, span.bytes);
}

void Checkpoint::read_rows(const TensorInfo& tensor, int64_t first_row, int64_t rows, DType target,
                           std::span<std::byte> out) const {
  const Source& source = source_of(tensor);
  SPYRE_CHECK(first_row >= 0 && rows >= 0 && rows <= tensor.rows() && first_row <= tensor.rows() - rows,
              "rows {} + {} of '{}', which has {}", first_row, rows, tensor.name, tensor.rows());
  const auto width = static_cast<uint64_t>(tensor.row_elements());
  const uint64_t count = static_cast<uint64_t>(rows) * width, size = size_of(target);
  SPYRE_CHECK(out.size() == count * size, "'{}': {} bytes for {} {} elements", tensor.name, out.size(), count,
              to_string(target));
  const bool as_stored = source.block == 1 && target == tensor.dtype;
  if (!as_stored && !(is_readable_float(target) && (can_dequantize(source.type) || source.type == kF64)))
    throw_error(ErrorCode::kInvalidArgument, "tensor '{}' is {}: it cannot be read as {}", tensor.name, tensor.storage,
                to_string(target));
  if (count == 0) return;

  const auto row = static_cast<uint64_t>(first_row);
  try {
    if (source.head_rows) {
      read_heads(source, as_stored, width, row, static_cast<uint64_t>(rows), target, out.data());
    } else if (as_stored) {
      read_as_stored(source, row * width, count, size, out.data());
    } else {
      read_range(source, row * width, count, target, out.data());
    }
  } catch (const Error& error) {
    throw_error(error.code(), "tensor '{}': {}", printable(tensor.name), error.what());
  }
}

}  // namespace spyre::formats
