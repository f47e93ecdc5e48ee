#include "plugins/spyre/worker/weight_store.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::worker {

using device::DeviceTensor;
using device::HostForm;

namespace {

// A slice of a weight is read, transposed and written by one thread: as many panels of 64 columns as keep its rows in
// the second-level cache. Longer rows come half a panel at once, which is the least that fills whole cache lines.
constexpr int64_t kSliceBytes = 384 * 1024, kPanel = 64, kHalfPanel = 32;

int64_t rows_in_cache(const nn::Parameter& parameter) {
  int64_t row_bytes = static_cast<int64_t>(size_of(parameter.type.dtype));
  for (size_t i = 1; i < parameter.loaded_shape.size(); ++i) row_bytes *= parameter.loaded_shape[i];
  const int64_t rows = kSliceBytes / std::max<int64_t>(row_bytes, 1);
  return rows >= kPanel ? rows / kPanel * kPanel : kHalfPanel;
}

bool is_panels(HostForm form) {
  return form == HostForm::kPanels || form == HostForm::kPanelsOutIn;
}

}  // namespace

void WeightStore::begin(const std::vector<const nn::Parameter*>& parameters) {
  std::map<const nn::Parameter*, std::vector<const nn::Parameter*>> aliases;  // of each: who shares its values
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->alias != nullptr) aliases[parameter->alias].push_back(parameter);
  }
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->alias != nullptr) continue;
    loaded_.push_back(parameter);
    plan_targets(*parameter, aliases[parameter]);
  }
  allocate_targets();
}

// Tied weights: the head's panels hold the values once. The embedding gathers its rows from them (on the card it has a
// table of its own, and is charged for it).
void WeightStore::plan_targets(const nn::Parameter& parameter, const std::vector<const nn::Parameter*>& aliases) {
  std::vector<Target>& targets = targets_[&parameter];
  const nn::Parameter* panels = nullptr;
  for (const nn::Parameter* alias : aliases) {
    const auto use = uses_.find(alias);
    if (use == uses_.end()) continue;
    const bool transposed = alias->transposed != parameter.transposed;
    targets.push_back({.owner = alias, .tensor = nullptr, .transposed = transposed});
    const HostForm form = use->second.form;
    if (form == HostForm::kPanelsOutIn || (form == HostForm::kPanels && transposed)) panels = alias;
  }
  const auto use = uses_.find(&parameter);
  if (use == uses_.end()) return;
  const bool shares = device_.options().mode == device::ExecutionMode::kHost && panels != nullptr;
  if (shares && use->second.form == HostForm::kGatherTable) {
    shared_[&parameter] = panels;
  } else {
    targets.push_back({.owner = &parameter, .tensor = nullptr, .transposed = false});
  }
}

void WeightStore::allocate_targets() {
  std::vector<device::TensorRequest> requests;
  std::vector<Target*> targets;
  for (const nn::Parameter* parameter : loaded_) {  // in memory as a step reads them
    for (Target& target : targets_.at(parameter)) {
      const ParameterUse& use = uses_.at(target.owner);
      requests.push_back({use.spec, use.form});
      targets.push_back(&target);
    }
  }
  const std::vector<DeviceTensor> tensors = device_.allocate_together(requests, "weights");
  for (size_t i = 0; i < tensors.size(); ++i) {
    targets[i]->tensor = tensors_[targets[i]->owner] = tensors[i];
    host_bytes_ += static_cast<int64_t>(tensors[i]->memory.size());
  }
  for (const auto& [table, panels] : shared_) {
    tensors_[table] = device_.share_transposed(uses_.at(table).spec, tensors_.at(panels), "weights");
  }
  if (device_.options().mode != device::ExecutionMode::kHost) return;
  for (const nn::Parameter* parameter : loaded_) {
    if (slice_rows(*parameter) == 0) continue;
    for (const Target& target : targets_.at(parameter)) device_.count_upload(target.tensor, "weights");
  }
}

int64_t WeightStore::slice_rows(const nn::Parameter& parameter) const {
  if (device_.options().mode != device::ExecutionMode::kHost || parameter.loaded_shape.empty()) return 0;
  for (const Target& target : targets_.at(&parameter)) {
    const HostForm form = uses_.at(target.owner).form;
    const int dim = target.slice_dim(parameter);
    if (is_panels(form) ? dim != (form == HostForm::kPanels ? 1 : 0) : dim != 0) return 0;
  }
  return parameter.buffer.data == nullptr ? rows_in_cache(parameter) : 0;
}

void WeightStore::accept_slice(const nn::Parameter& parameter, int64_t first_row, const nn::HostTensor& weights) {
  for (const Target& target : targets_.at(&parameter)) {
    device_.upload_slice(target.tensor, target.transposed ? weights.transposed() : weights, target.slice_dim(parameter),
                         first_row);
  }
}

void WeightStore::accept(const nn::Parameter& parameter, nn::HostTensor weights) {
  for (const Target& target : targets_.at(&parameter)) {
    device_.upload(target.tensor, target.transposed ? weights.transposed() : weights, "weights");
  }
}

const DeviceTensor& WeightStore::tensor(const nn::Parameter& parameter) const {
  const auto found = tensors_.find(&parameter);
  SPYRE_CHECK(found != tensors_.end(), "{} was not loaded", parameter.name);
  return found->second;
}

}  // namespace spyre::worker
