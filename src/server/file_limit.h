// A connection takes a descriptor, and shells hand out few.
#pragma once

#include <cstdint>

namespace spyre::server {

// Lets this process open as many files as its hard limit allows; returns how many that are.
int64_t raise_file_limit();

}  // namespace spyre::server
