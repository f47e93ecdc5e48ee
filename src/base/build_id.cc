#include "base/build_id.h"

#include "base/build_id_value.h"

namespace spyre {

std::string_view build_id() {
  return SPYRE_BUILD_ID;
}

}  // namespace spyre
