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

  // Throws Error(kInternal) for a parameter that was not loaded.
  const device::DeviceTensor& tensor(const nn::Parameter& parameter) const;
  int64_t host_bytes() const { return host_bytes_; }

 private:
  device::DeviceTensor put(const nn::Parameter& parameter, const nn::HostTensor& weights);

  device::SoftwareDevice& device_;
  std::map<const nn::Parameter*, ParameterUse> uses_;
  std::map<const nn::Parameter*, std::vector<const nn::Parameter*>> aliases_;  // of each: who shares its values
  std::map<const nn::Parameter*, device::DeviceTensor> tensors_;
  int64_t host_bytes_ = 0;
};

}  // namespace spyre::worker
