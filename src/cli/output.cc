#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace spyre::cli {

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw_error(ErrorCode::kUnavailable, "cannot write the output: {}", std::strerror(errno));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw_error(ErrorCode::kUnavailable, "cannot write '{}': {}", path.string(), std::strerror(errno));
}

}  // namespace spyre::cli
