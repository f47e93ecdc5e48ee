#include "nn/loading/loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

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

// Derived tables that old checkpoints carry; we build our own.
bool ignorable(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".masked_bias");
}

HostTensor read_sources(const Parameter& parameter, const formats::Checkpoint& checkpoint) {
  const DType dtype = parameter.type.dtype;
  HostTensor weights = HostTensor::allocate(dtype, parameter.loaded_shape);
  int64_t row_elements = 1;
  for (size_t i = 1; i < parameter.loaded_shape.size(); ++i) row_elements *= parameter.loaded_shape[i];
  for (const WeightSource& source : parameter.sources) {
    const formats::TensorInfo* info = checkpoint.find(source.name);
    if (info == nullptr) throw_error(ErrorCode::kNotFound, "tensor '{}' is missing in the checkpoint", source.name);
    std::vector<int64_t> expected = parameter.loaded_shape;
    expected[0] = source.rows;
    if (info->shape != expected) {
      throw_error(ErrorCode::kCorruptData, "tensor '{}' has shape [{}], the config asks for [{}]", source.name,
                  fmt::join(info->shape, ", "), fmt::join(expected, ", "));
    }
    const size_t row_bytes = static_cast<size_t>(row_elements) * size_of(dtype);
    checkpoint.read(*info, dtype,
                    {weights.data.get() + static_cast<size_t>(source.row) * row_bytes,
                     static_cast<size_t>(source.rows) * row_bytes});
  }
  return weights;
}

// A tied head that the file stores all the same must be the embedding: with values of its own, one part of the
// checkpoint is wrong, and which one cannot be known (Hugging Face unties such heads, others ignore them).
void check_stored_head(const Parameter& embedding, const formats::Checkpoint& checkpoint) {
  const formats::TensorInfo* head = checkpoint.find(kHead);
  const formats::TensorInfo* rows =
      embedding.sources.size() == 1 ? checkpoint.find(embedding.sources[0].name) : nullptr;
  if (head == nullptr || rows == nullptr) return;
  bool same = head->shape == rows->shape;
  constexpr int64_t kRows = 256;
  const DType dtype = embedding.type.dtype;
  std::vector<std::byte> a, b;
  for (int64_t row = 0; same && row < rows->rows(); row += kRows) {
    const int64_t count = std::min(kRows, rows->rows() - row);
    a.resize(static_cast<size_t>(count * rows->row_elements()) * size_of(dtype));
    b.resize(a.size());
    checkpoint.read_rows(*head, row, count, dtype, a);
    checkpoint.read_rows(*rows, row, count, dtype, b);
    same = a == b;
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

}  // namespace

void load_weights(const Module& model, const formats::Checkpoint& checkpoint, WeightSink& sink,
                  const std::function<void(const LoadTotals&)>& progress) {
  const std::vector<Entry> entries = collect(model);
  std::vector<const Parameter*> parameters;
  LoadTotals totals;
  std::set<std::string> used;
  bool tied = false;
  for (const Entry& entry : entries) {
    parameters.push_back(entry.parameter);
    totals.bytes_total += loaded_bytes(*entry.parameter);
    tied = tied || entry.parameter->alias != nullptr;
    for (const WeightSource& source : entry.parameter->sources) used.insert(source.name);
  }
  for (const formats::TensorInfo& info : checkpoint.tensors()) {
    if (used.contains(info.name) || ignorable(info.name) || (tied && info.name == kHead)) continue;
    throw_error(ErrorCode::kUnsupported, "the checkpoint's tensor '{}' is not used by {}", info.name,
                model.class_name());
  }
  sink.begin(parameters);
  for (const Entry& entry : entries) {
    const Parameter& parameter = *entry.parameter;
    if (parameter.alias != nullptr) {
      check_stored_head(*parameter.alias, checkpoint);
      continue;
    }
    HostTensor weights = parameter.sources.empty() ? parameter.buffer : read_sources(parameter, checkpoint);
    if (!parameter.sources.empty()) weights = entry.layer->process_weights_after_loading(parameter, std::move(weights));
    sink.accept(parameter, std::move(weights));
    totals.bytes_done += loaded_bytes(parameter);
    if (progress) progress(totals);
  }
}

}  // namespace spyre::nn
