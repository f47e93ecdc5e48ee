#include "python/native/bindings.h"

namespace spyre::python {

void bind_hosted_worker(nanobind::module_& m) {
  (void)m;
}

}  // namespace spyre::python
