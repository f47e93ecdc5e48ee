// Files that are not what their name says: what a download leaves behind when it went wrong. A reader that
// makes no sense of a file's start asks here first, so that its message says what the file is and not which byte is
// odd.
//
// Stateless; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre::formats {

inline constexpr size_t kForeignHeadBytes = 256;  // no more of a file is looked at

// kCorruptData "<name> is ..." when `head`, the first bytes of a file (all of them, or kForeignHeadBytes at least), is
// the start of a Git LFS pointer, of an HTML or XML page, of a zip or gzip archive, or nothing but zeros. No GGUF or
// JSON file begins so; the length at the start of a safetensors file may happen to look like an archive's magic.
SPYRE_API void refuse_foreign(std::string_view head, const std::string& name);

}  // namespace spyre::formats
