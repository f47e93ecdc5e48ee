#include "plugins/spyre/worker/weight_store.h"

#include "base/error.h"

namespace spyre::worker {

using device::DeviceTensor;
using device::HostForm;

void WeightStore::begin(const std::vector<const nn::Parameter*>& parameters) {
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->alias != nullptr) aliases_[parameter->alias].push_back(parameter);
  }
}

DeviceTensor WeightStore::put(const nn::Parameter& parameter, const nn::HostTensor& weights) {
  const ParameterUse& use = uses_.at(&parameter);
  DeviceTensor tensor = device_.allocate(use.spec, "weights", use.form);
  device_.upload(tensor, weights, "weights");
  host_bytes_ += static_cast<int64_t>(tensor->memory.size());
  tensors_[&parameter] = tensor;
  return tensor;
}

// Tied weights: the head's panels hold the values once. The embedding gathers its rows from them (on the card it has a
// table of its own, and is charged for it).
void WeightStore::accept(const nn::Parameter& parameter, nn::HostTensor weights) {
  const bool shares = device_.options().mode == device::ExecutionMode::kHost;
  DeviceTensor panels;
  for (const nn::Parameter* alias : aliases_[&parameter]) {
    const auto use = uses_.find(alias);
    if (use == uses_.end()) continue;
    const bool transposed = alias->transposed != parameter.transposed;
    const DeviceTensor tensor = put(*alias, transposed ? weights.transposed() : weights);
    const bool column_is_row =
        use->second.form == HostForm::kPanelsOutIn || (use->second.form == HostForm::kPanels && transposed);
    if (column_is_row) panels = tensor;
  }
  const auto use = uses_.find(&parameter);
  if (use == uses_.end()) return;
  if (shares && panels != nullptr && use->second.form == HostForm::kGatherTable) {
    tensors_[&parameter] = device_.share_transposed(use->second.spec, panels, "weights");
  } else {
    put(parameter, weights);
  }
}

const DeviceTensor& WeightStore::tensor(const nn::Parameter& parameter) const {
  const auto found = tensors_.find(&parameter);
  SPYRE_CHECK(found != tensors_.end(), "{} was not loaded", parameter.name);
  return found->second;
}

}  // namespace spyre::worker
