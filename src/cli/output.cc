#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace spyre::cli {

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw_error(ErrorCode::kUnavailable, "cannot write the output: {}", std::strerror(errno));
}

}  // namespace spyre::cli
