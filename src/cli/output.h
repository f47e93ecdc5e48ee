// Writing to stdout and to files. A reader that went away or a full disk is an error like any other: one line, exit
// code 1.
#pragma once

#include <filesystem>
#include <string_view>

namespace spyre::cli {

// Writes |text|, and what was written before, through to the file or pipe. Throws Error(kUnavailable).
void write_out(std::string_view text);

// The whole file |path|, which is replaced. Throws Error(kUnavailable) naming it.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace spyre::cli
