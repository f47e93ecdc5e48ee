// The module spyre_inference._native: what Python sees. See python/spyre_inference/_native.pyi.
#include "python/native/bindings.h"

NB_MODULE(_native, m) {
  spyre::python::bind_errors(m);
  spyre::python::bind_settings(m);
  spyre::python::bind_hosted_worker(m);
  spyre::python::bind_engine(m);
}
