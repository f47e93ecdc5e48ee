// SPYRE_API marks what crosses a shared-library boundary: the core library is used by the program, the platform plugins
// and the Python module, all built with hidden visibility.
#pragma once

#define SPYRE_API __attribute__((visibility("default")))
