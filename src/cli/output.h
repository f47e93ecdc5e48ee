// Writing to stdout. A reader that went away or a full disk is an error like any other: one line, exit code 1.
#pragma once

#include <string_view>

namespace spyre::cli {

// Writes |text|, and what was written before, through to the file or pipe. Throws Error(kUnavailable).
void write_out(std::string_view text);

}  // namespace spyre::cli
