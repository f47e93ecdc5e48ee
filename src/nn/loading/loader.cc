#include "nn/loading/loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "nn/loading/slices.h"

namespace spyre::nn {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

struct Entry {
  const Module* layer;
  const Parameter* parameter;
};

std::vector<Entry> collect(const Module& model) {
  std::vector<Entry> entries;
  walk(model, [&](const Module& module) {
    for (const Parameter* parameter : module.parameters()) entries.push_back({&module, parameter});
  });
  return entries;
}

// Derived tables that old checkpoints (and some trainers', with cosines and sines) carry; we build our own.
bool ignorable(const std::string& name) {
  constexpr std::string_view kTables[] = {".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached",
                                          ".attn.bias", ".masked_bias"};
  return std::ranges::any_of(kTables, [&](std::string_view table) { return name.ends_with(table); });
}

// Each tensor that the parameter is made of, in order. Throws when one is not what the model asks for.
std::vector<const formats::TensorInfo*> find_sources(const Parameter& parameter,
                                                     const formats::Checkpoint& checkpoint) {
  std::vector<const formats::TensorInfo*> found;
  for (const WeightSource& source : parameter.sources) {
    const formats::TensorInfo* info = checkpoint.find(source.name);
    if (info == nullptr) throw_error(ErrorCode::kNotFound, "tensor '{}' is missing in the checkpoint", source.name);
    std::vector<int64_t> expected = parameter.loaded_shape;
    expected[0] = source.rows;
    if (info->shape != expected) {
      throw_error(ErrorCode::kCorruptData, "tensor '{}' has shape [{}], the config asks for [{}]", source.name,
                  fmt::join(info->shape, ", "), fmt::join(expected, ", "));
    }
    found.push_back(info);
  }
  return found;
}

size_t row_bytes(const Parameter& parameter) {
  int64_t elements = 1;
  for (size_t i = 1; i < parameter.loaded_shape.size(); ++i) elements *= parameter.loaded_shape[i];
  return static_cast<size_t>(elements) * size_of(parameter.type.dtype);
}

HostTensor read_whole(const Parameter& parameter, const formats::Checkpoint& checkpoint) {
  HostTensor weights = HostTensor::allocate(parameter.type.dtype, parameter.loaded_shape);
  const std::vector<const formats::TensorInfo*> tensors = find_sources(parameter, checkpoint);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const WeightSource& source = parameter.sources[i];
    checkpoint.read(*tensors[i], parameter.type.dtype,
                    {weights.data.get() + static_cast<size_t>(source.row) * row_bytes(parameter),
                     static_cast<size_t>(source.rows) * row_bytes(parameter)});
  }
  return weights;
}

// A tied head that the file stores all the same must be the embedding: with values of its own, one part of the
// checkpoint is wrong, and which one cannot be known (Hugging Face unties such heads, others ignore them).
void check_stored_head(const Parameter& embedding, const formats::Checkpoint& checkpoint, ThreadTeam* team) {
  const formats::TensorInfo* head = checkpoint.find(kHead);
  const formats::TensorInfo* rows =
      embedding.sources.size() == 1 ? checkpoint.find(embedding.sources[0].name) : nullptr;
  if (head == nullptr || rows == nullptr) return;
  std::atomic<bool> same = head->shape == rows->shape;
  if (same) {
    SliceQueue queue(checkpoint);
    queue.add(*rows, 256, 0);
    const DType dtype = embedding.type.dtype;
    queue.run(team, [&](const Slice& slice, int) {
      if (!same) return;
      std::vector<std::byte> a(static_cast<size_t>(slice.rows * rows->row_elements()) * size_of(dtype)), b(a.size());
      checkpoint.read_rows(*head, slice.first_row, slice.rows, dtype, a);
      checkpoint.read_rows(*rows, slice.first_row, slice.rows, dtype, b);
      if (a != b) same = false;
    });
  }
  if (!same) {
    throw_error(ErrorCode::kCorruptData,
                "tensor '{}' differs from '{}' in a model whose head is tied to it: set tie_word_embeddings to false "
                "in config.json to use it, or remove it from the file",
                head->name, rows->name);
  }
}

int64_t loaded_bytes(const Parameter& parameter) {
  if (parameter.alias != nullptr) return 0;
  return parameter.type.elements() * static_cast<int64_t>(size_of(parameter.type.dtype));
}

// The state of one call of load_weights().
class Loading {
 public:
  Loading(const Module& model, const formats::Checkpoint& checkpoint, WeightSink& sink, const LoadOptions& options)
      : entries_(collect(model)), checkpoint_(checkpoint), sink_(sink), options_(options), slices_(checkpoint) {}

  void run(const Module& model) {
    check_tensors(model);
    begin();
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Parameter& parameter = *entries_[i].parameter;
      if (parameter.alias != nullptr) {
        check_stored_head(*parameter.alias, checkpoint_, options_.team);
      } else if (!plan_slices(i)) {
        load_whole(entries_[i]);
      }
    }
    load_slices();
  }

 private:
  // Every tensor of the model is there in the right shape, and every tensor that is there belongs to the model.
  void check_tensors(const Module& model) const {
    std::set<std::string> used;
    bool tied = false;
    for (const Entry& entry : entries_) {
      tied = tied || entry.parameter->alias != nullptr;
      for (const WeightSource& source : entry.parameter->sources) used.insert(source.name);
    }
    for (const formats::TensorInfo& info : checkpoint_.tensors()) {
      if (used.contains(info.name) || ignorable(info.name) || (tied && info.name == kHead)) continue;
      throw_error(ErrorCode::kUnsupported, "the checkpoint's tensor '{}' is not used by {}", info.name,
                  model.class_name());
    }
    for (const Entry& entry : entries_) (void)find_sources(*entry.parameter, checkpoint_);
  }

  void begin() {
    std::vector<const Parameter*> parameters;
    for (const Entry& entry : entries_) {
      parameters.push_back(entry.parameter);
      total_ += loaded_bytes(*entry.parameter);
    }
    sink_.begin(parameters);
  }

  void load_whole(const Entry& entry) {
    const Parameter& parameter = *entry.parameter;
    HostTensor weights = parameter.buffer;
    if (!parameter.sources.empty()) {
      weights = entry.layer->process_weights_after_loading(parameter, read_whole(parameter, checkpoint_));
    }
    sink_.accept(parameter, std::move(weights));
    done_ += loaded_bytes(parameter);
    report();
  }

  // Whether the parameter comes in slices; they are read later, all parameters' together.
  bool plan_slices(size_t entry) {
    const Parameter& parameter = *entries_[entry].parameter;
    const int64_t rows = parameter.sources.empty() ? 0 : sink_.slice_rows(parameter);
    if (rows == 0) return false;
    const std::vector<const formats::TensorInfo*> tensors = find_sources(parameter, checkpoint_);
    for (size_t i = 0; i < tensors.size(); ++i) {
      slices_.add(*tensors[i], rows, pieces_.size());
      pieces_.push_back({&entries_[entry], parameter.sources[i].row});
    }
    slice_bytes_ = std::max(slice_bytes_, static_cast<size_t>(rows) * row_bytes(parameter));
    return true;
  }

  void load_slices() {
    std::vector<std::shared_ptr<std::byte[]>> memory(options_.team != nullptr ? options_.team->size() : 1);
    slices_.run(options_.team, [&](const Slice& slice, int member) {
      if (memory[member] == nullptr) memory[member].reset(new std::byte[slice_bytes_]);
      load_slice(slice, memory[member]);
      if (member == 0) report();
    });
    report();
  }

  void load_slice(const Slice& slice, const std::shared_ptr<std::byte[]>& memory) {
    const Piece& piece = pieces_[slice.id];
    const Parameter& parameter = *piece.entry->parameter;
    HostTensor weights{.dtype = parameter.type.dtype, .shape = parameter.loaded_shape, .data = memory};
    weights.shape[0] = slice.rows;
    const size_t bytes = weights.bytes();
    checkpoint_.read_rows(*slice.tensor, slice.first_row, slice.rows, weights.dtype, {memory.get(), bytes});
    sink_.accept_slice(parameter, piece.row + slice.first_row,
                       piece.entry->layer->process_weights_after_loading(parameter, std::move(weights)));
    done_ += static_cast<int64_t>(bytes);
  }

  void report() const {
    if (options_.progress) options_.progress({done_, total_});
  }

  struct Piece {  // a checkpoint tensor's place in a parameter
    const Entry* entry = nullptr;
    int64_t row = 0;
  };

  const std::vector<Entry> entries_;
  const formats::Checkpoint& checkpoint_;
  WeightSink& sink_;
  const LoadOptions& options_;
  SliceQueue slices_;
  std::vector<Piece> pieces_;
  size_t slice_bytes_ = 0;  // of the largest
  std::atomic<int64_t> done_{0};
  int64_t total_ = 0;
};

}  // namespace

void WeightSink::accept_slice(const Parameter& parameter, int64_t, const HostTensor&) {
  SPYRE_CHECK(false, "{} came in slices", parameter.name);
}

void load_weights(const Module& model, const formats::Checkpoint& checkpoint, WeightSink& sink,
                  const LoadOptions& options) {
  Loading(model, checkpoint, sink, options).run(model);
}

}  // namespace spyre::nn
