// The platforms that the module can find: the built-in ones, the plugins beside the module (lib/spyre/plugins), and
// those of SPYRE_PLUGIN_PATH.
#pragma once

#include "platform/plugin.h"

namespace spyre::python {

// Found at the first call, kept for good. Throws what PlatformRegistry::discover() throws, at each call until it does
// not. Any thread.
const platform::PlatformRegistry& platforms();

}  // namespace spyre::python
