#include "nn/module.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "nn/layers/attention.h"

namespace spyre::nn {

HostTensor HostTensor::allocate(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor{.dtype = dtype, .shape = std::move(shape)};
  tensor.data = std::shared_ptr<std::byte[]>(new std::byte[std::max<size_t>(tensor.bytes(), 1)]);
  return tensor;
}

int64_t HostTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

HostTensor HostTensor::transposed() const {
  SPYRE_CHECK(shape.size() == 2, "rank {}", shape.size());
  HostTensor result = *this;
  const std::vector<int64_t> from = contiguous() ? std::vector<int64_t>{shape[1], 1} : strides;
  result.shape = {shape[1], shape[0]};
  result.strides = {from[1], from[0]};
  return result;
}

HostTensor Module::process_weights_after_loading(const Parameter& parameter, HostTensor weights) const {
  std::vector<int64_t> extents = parameter.type.extents();
  if (!extents.empty() && !weights.shape.empty()) extents[0] = std::min(extents[0], weights.shape[0]);  // a slice
  SPYRE_CHECK(weights.shape == extents, "{}", parameter.name);
  return weights;
}

Parameter* Module::add_parameter(Parameter parameter) {
  owned_parameters_.push_back(std::make_unique<Parameter>(std::move(parameter)));
  parameters_.push_back(owned_parameters_.back().get());
  return parameters_.back();
}

namespace {

bool is_attention(const Module& module) {
  return dynamic_cast<const Attention*>(&module) != nullptr;
}

bool contains_attention(const Module& module) {
  bool found = false;
  walk(module, [&](const Module& m) { found = found || is_attention(m); });
  return found;
}

}  // namespace

std::vector<const ModuleList*> find_block_lists(const Module& root) {
  std::vector<const ModuleList*> lists;
  walk(root, [&](const Module& module) {
    const auto* list = dynamic_cast<const ModuleList*>(&module);
    if (list == nullptr || list->size() == 0) return;
    bool attends = false;  // one is enough: layers without attention are blocks of a hybrid stack too
    for (size_t i = 0; i < list->size(); ++i) {
      if (is_attention((*list)[i])) return;
      attends = attends || contains_attention((*list)[i]);
    }
    if (attends) lists.push_back(list);
  });
  return lists;
}

BlockSet find_blocks(const Module& root) {
  BlockSet blocks;
  for (const ModuleList* list : find_block_lists(root)) {
    for (size_t i = 0; i < list->size(); ++i) blocks.insert(&(*list)[i]);
  }
  return blocks;
}

}  // namespace spyre::nn
