// The module spyre_inference._native: what Python sees. See python/spyre_inference/_native.pyi.
#include <nanobind/nanobind.h>

#include <nanobind/stl/string.h>

#include <string>

#include "base/build_id.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.def("build_id", [] { return std::string(spyre::build_id()); });
}
