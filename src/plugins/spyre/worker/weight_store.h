// WeightStore: the model's parameters on the device. It is where the loader hands weights over; each goes to device
// memory in the form in which the compiled programs read it, and its host copy is dropped.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/loading/loader.h"
#include "plugins/spyre/device/device.h"

namespace spyre::worker {

struct ParameterUse {
  device::TensorSpec spec;
  device::HostForm form = device::HostForm::kRowMajor;
};

class WeightStore final : public nn::WeightSink {
 public:
  // |uses|: how the programs read each parameter. A parameter that no program reads is not kept.
  WeightStore(device::SoftwareDevice& device, std::map<const nn::Parameter*, ParameterUse> uses)
      : device_(device), uses_(std::move(uses)) {}

  void begin(const std::vector<const nn::Parameter*>& parameters) override;
  void accept(const nn::Parameter& parameter, nn::HostTensor weights) override;
  // Host stores are written in slices; card stores (checked and DL16 mode) and views that a transfer has to walk whole.
  int64_t slice_rows(const nn::Parameter& parameter) const override;
  void accept_slice(const nn::Parameter& parameter, int64_t first_row, const nn::HostTensor& weights) override;

  // Throws Error(kInternal) for a parameter that was not loaded.
  const device::DeviceTensor& tensor(const nn::Parameter& parameter) const;
  int64_t host_bytes() const { return host_bytes_; }

 private:
  // A tensor that a parameter's values go to: its own, or that of an alias, which may want them transposed.
  struct Target {
    const nn::Parameter* owner = nullptr;
    device::DeviceTensor tensor;
    bool transposed = false;  // beside the parameter

    int slice_dim(const nn::Parameter& parameter) const { return parameter.transposed != transposed ? 1 : 0; }
  };

  void plan_targets(const nn::Parameter& parameter, const std::vector<const nn::Parameter*>& aliases);
  void allocate_targets();

  device::SoftwareDevice& device_;
  std::map<const nn::Parameter*, ParameterUse> uses_;
  std::vector<const nn::Parameter*> loaded_;                     // in the model's order, without aliases
  std::map<const nn::Parameter*, std::vector<Target>> targets_;  // of each of them
  // Tables whose elements are those of the panels of another parameter.
  std::map<const nn::Parameter*, const nn::Parameter*> shared_;
  std::map<const nn::Parameter*, device::DeviceTensor> tensors_;
  int64_t host_bytes_ = 0;
};

}  // namespace spyre::worker
