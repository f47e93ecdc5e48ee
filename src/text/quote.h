// Words out of files, in error messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace spyre::text {

// In double quotes, escaped to ASCII on one line, cut after 60 bytes.
inline std::string in_quotes(std::string_view word) {
  return nlohmann::json(std::string(word.substr(0, 60)))
      .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace spyre::text
