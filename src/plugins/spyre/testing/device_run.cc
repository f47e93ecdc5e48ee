#include "plugins/spyre/testing/device_run.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "nn/layers/rotary.h"

namespace spyre::testing {

nn::HostTensor to_host_tensor(const graph::Array& array) {
  nn::HostTensor tensor = nn::HostTensor::allocate(array.type().dtype, array.type().extents());
  if (array.type().dtype == DType::kI32) {
    std::copy(array.ints().begin(), array.ints().end(), tensor.as<int32_t>());
  } else {
    for (int64_t i = 0; i < array.elements(); ++i) nn::store_float(tensor, i, array.floats()[i]);
  }
  return tensor;
}

std::vector<std::vector<float>> run_on_device(device::SoftwareDevice& device, const device::Program& program,
                                              const graph::Bindings& bindings, int64_t live) {
  const graph::Graph& graph = program.graph;
  device::Launch launch{.program = &program};
  int64_t bucket = 0;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Type& type = graph.type(graph.inputs[i]);
    if (type.rows_axis() >= 0) bucket = type.dims[type.rows_axis()].extent;
    launch.inputs.push_back(device.allocate(program.input_specs[i], "test"));
    const int64_t rows = live > 0 && type.rows_axis() == 0 ? live : 0;
    device.upload(launch.inputs.back(), to_host_tensor(bindings.inputs[i]), "test", rows);
  }
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    launch.parameters.push_back(device.allocate(program.parameter_specs[i], "test", program.parameter_forms[i]));
    device.upload(launch.parameters.back(), to_host_tensor(bindings.parameters[i]), "test");
  }
  for (const device::TensorSpec& spec : program.output_specs) launch.outputs.push_back(device.allocate(spec, "test"));
  const int64_t rows = live > 0 ? live : std::max<int64_t>(bucket, 1);
  device.run(launch, rows, nullptr);
  std::vector<std::vector<float>> results;
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    const graph::Type& type = graph.type(graph.outputs[i]);
    const int64_t first = live > 0 && type.rows_axis() == 0 ? live : 0;
    const int64_t elements = first > 0 ? type.elements() / type.dims[0].extent * first : type.elements();
    std::vector<float> values(static_cast<size_t>(elements));
    device.download(launch.outputs[i], values.data(), "test", first);
    results.push_back(std::move(values));
  }
  return results;
}

bool equal_bits(std::span<const float> a, std::span<const float> b, size_t* where) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool equal =
        i < a.size() && i < b.size() &&
        (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) || (std::isnan(a[i]) && std::isnan(b[i])));
    if (equal) continue;
    if (where != nullptr) *where = i;
    return false;
  }
  return true;
}

}  // namespace spyre::testing
