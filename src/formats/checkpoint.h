// A checkpoint as the loader sees it: Hugging Face tensor names and [out, in] shapes, whatever the file.
//
// Opens a folder (config.json with model.safetensors, or with the shards of model.safetensors.index.json; or exactly
// one .gguf file) or a .gguf file, and checks all of it before the first tensor is read. Nothing is downloaded.
//
// A GGUF file is translated while it is read (families: formats/tensor_names.h): names (blk.3.attn_q.weight becomes
// model.layers.3.self_attn.q_proj.weight), shapes, blocks to floats, and the rows of Q and K, which some families keep
// interleaved (rotary pairs (2i, 2i + 1)) where Hugging Face keeps halves (i, i + head_dim / 2):
//   row h * D + c * D/2 + i of the result is row h * D + 2 i + c of the file, for head h, half c, i < D/2.
//
// A Checkpoint does not change after opening; reads are const and may run on any number of threads, each with its own
// output. A read takes at most 150 KiB of stack beside the output. A file that was cut short since it was opened is an
// error of the read that misses its bytes (kCorruptData).
#pragma once

#include <cstddef>
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
#include "formats/model_config.h"

namespace spyre::formats {

class GgufFile;
class SafetensorsFile;
struct SafetensorsTensor;

struct SPYRE_API TensorInfo {
  std::string name;            // as Hugging Face names it
  std::vector<int64_t> shape;  // row-major; a linear weight is [out, in]
  std::string storage;         // the type in the file: "F16", "Q4_1", ...
  DType dtype;                 // of its elements; f32 for block-quantised storage
  uint64_t bytes;              // in the file
  uint32_t block = 1;          // neighbouring elements that are packed together; more than 1 in block-quantised storage

  int64_t elements() const;
  bool quantised() const { return block > 1; }
  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t row_elements() const { return rows() ? elements() / rows() : 0; }
};

class SPYRE_API Checkpoint {
 public:
  // kNotFound: no such path, or a named file missing; kUnsupported: an architecture, dtype or quantisation that is not
  // read (with the set that is); kCorruptData: a file that contradicts itself.
  static std::unique_ptr<Checkpoint> open(const std::filesystem::path& model);
  static std::unique_ptr<Checkpoint> from_gguf(std::unique_ptr<GgufFile> file);  // folder() is empty

  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  ~Checkpoint();

  // config().dtype is filled in from the tensors when the configuration does not say (absent for quantised files).
  const ModelConfig& config() const { return config_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // sorted by name
  const TensorInfo* find(std::string_view name) const;

  // The whole tensor, or rows [first_row, first_row + rows) of it (a row: one index of the first dimension; a vector
  // has rows of one element), as `target`. f32, f16 and bf16 convert to each other, and quantised types to them, with
  // one rounding from the fp32 value; other types are read only as what they are (kInvalidArgument).
  // REQUIRES: `tensor` is an element of tensors(); out.size() == elements * size_of(target).
  void read(const TensorInfo& tensor, DType target, std::span<std::byte> out) const;
  void read_rows(const TensorInfo& tensor, int64_t first_row, int64_t rows, DType target,
                 std::span<std::byte> out) const;

  // Where the tensor begins: the number of its file, and the offset in it. Reading in this order reads files forward.
  std::pair<size_t, uint64_t> place(const TensorInfo& tensor) const;
  // A hint that these rows are read soon; never an error.
  void will_need(const TensorInfo& tensor, int64_t first_row, int64_t rows) const;

  bool is_gguf() const { return gguf_ != nullptr; }
  const GgufFile* gguf() const { return gguf_.get(); }             // for the tokenizer's keys; else nullptr
  const std::filesystem::path& folder() const { return folder_; }  // where the model's other files are
  const std::filesystem::path& path() const { return path_; }      // as given to open()

 private:
  struct Source;  // where and how a tensor lies in its file

  Checkpoint();
  void add_gguf(std::unique_ptr<GgufFile> file);
  void open_folder(const std::filesystem::path& folder);
  void add_shards(const std::filesystem::path& index);
  void add_tensor(const SafetensorsFile& file, const SafetensorsTensor& tensor);
  void finish();
  const Source& source_of(const TensorInfo& tensor) const;
  struct Span;  // of a file's bytes
  static Span span_of(const Source& source, uint64_t first, uint64_t count);
  static void read_range(const Source& source, uint64_t first, uint64_t count, DType target, std::byte* out);
  static void read_as_stored(const Source& source, uint64_t first, uint64_t count, size_t size, std::byte* out);
  static void read_heads(const Source& source, bool as_stored, uint64_t width, uint64_t first_row, uint64_t rows,
                         DType target, std::byte* out);

  std::filesystem::path path_, folder_;
  ModelConfig config_;
  std::unique_ptr<GgufFile> gguf_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<TensorInfo> tensors_;
  std::vector<Source> sources_;  // beside tensors_
};

}  // namespace spyre::formats
