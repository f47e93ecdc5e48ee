// The build id of the running core library: "<version>-<hash>", the hash over everything that decides the binary
// interface between the core and a plugin (headers of the core rooms, compiler, flags; see cmake/SpyreBuildId.cmake). A
// plugin states the id that it was built from, the macro SPYRE_BUILD_ID of the generated "base/build_id_value.h"; the
// host refuses a plugin whose id differs and prints both. Safe from any thread.
#pragma once

#include <string_view>

#include "base/export.h"

namespace spyre {

SPYRE_API std::string_view build_id();

}  // namespace spyre
