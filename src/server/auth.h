// API keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spyre::server {

// Whether |authorization|, the value of the header, is "Bearer KEY" with one of |keys|. The time it takes tells nothing
// of the keys but their lengths. Without keys everybody may enter.
bool authorized(std::string_view authorization, const std::vector<std::string>& keys);

// The keys of a file: one a line, blank lines and lines that start with # left out. Throws Error(kNotFound) when it
// cannot be read, kInvalidArgument when it has no key.
std::vector<std::string> read_key_file(const std::string& path);

}  // namespace spyre::server
