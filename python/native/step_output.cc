#include "python/native/step_output.h"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace spyre::python {
namespace {

namespace nb = nanobind;

nb::str to_str(const std::string& text) {
  return nb::str(text.data(), text.size());
}

// A numpy array over the memory of |values|, which it keeps.
template <typename T>
nb::object to_array(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  (void)kept.release();
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner));
}

nb::object to_arrays(platform::LogprobTable table) {
  const auto rows = static_cast<size_t>(table.rows), width = static_cast<size_t>(table.width);
  SPYRE_CHECK(
      table.token_ids.size() == rows * width && table.logprobs.size() == rows * width && table.ranks.size() == rows,
      "{} x {}: {}, {}, {}", rows, width, table.token_ids.size(), table.logprobs.size(), table.ranks.size());
  return nb::make_tuple(to_array(std::move(table.token_ids), {rows, width}),
                        to_array(std::move(table.logprobs), {rows, width}), to_array(std::move(table.ranks), {rows}));
}

}  // namespace

StepOutput::StepOutput(platform::HostedOutput output) : logprobs(nb::none()) {
  for (size_t i = 0; i < output.ids.size(); ++i) {
    req_ids.append(to_str(output.ids[i]));
    nb::list tokens;
    for (const int32_t token : output.tokens[i]) tokens.append(token);
    token_ids.append(tokens);
  }
  if (output.logprobs) logprobs = to_arrays(std::move(*output.logprobs));
  for (auto& [id, table] : output.prompt_logprobs) prompt_logprobs[to_str(id)] = to_arrays(std::move(table));
  for (const auto& [id, text] : output.errors) errors[to_str(id)] = to_str(text);
}

}  // namespace spyre::python
