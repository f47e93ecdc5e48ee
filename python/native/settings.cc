#include "python/native/bindings.h"

namespace spyre::python {

void bind_settings(nanobind::module_& m) {
  (void)m;
}

}  // namespace spyre::python
