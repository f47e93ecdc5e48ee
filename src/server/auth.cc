#include "server/auth.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"

namespace spyre::server {
namespace {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference =
        static_cast<unsigned char>(difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

bool authorized(std::string_view authorization, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  const bool bearer = std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + ('a' - 'A') : b); });
  const std::string_view given = trimmed(authorization.substr(kScheme.size()));
  bool known = false;
  for (const std::string& key : keys) known = equal_in_constant_time(given, key) || known;  // every key is looked at
  return bearer && known;
}

std::vector<std::string> read_key_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw_error(ErrorCode::kNotFound, "the API key file '{}' cannot be read", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && key.front() != '#') keys.emplace_back(key);
  }
  if (keys.empty()) throw_error(ErrorCode::kInvalidArgument, "the API key file '{}' has no key", path);
  return keys;
}

}  // namespace spyre::server
