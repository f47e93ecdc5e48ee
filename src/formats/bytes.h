// Small tools of the readers: little-endian loads, checked arithmetic, and names made fit for a message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace spyre::formats {

// A little-endian number at any address, on a host of either byte order.
template <typename T>
inline T load_le(const void* address) {
  T value;
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    std::memcpy(&value, address, sizeof(T));
  } else {
    unsigned char swapped[sizeof(T)];
    for (size_t i = 0; i < sizeof(T); ++i) swapped[i] = static_cast<const unsigned char*>(address)[sizeof(T) - 1 - i];
    std::memcpy(&value, swapped, sizeof(T));
  }
  return value;
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// False on overflow; `out` is then meaningless.
[[nodiscard]] inline bool multiply(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
[[nodiscard]] inline bool add(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

// A name from a file, as shown in a message: one line of printable ASCII, other bytes as \xNN, cut after `max` bytes.
inline std::string printable(std::string_view name, size_t max = 100) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (char c : name.substr(0, max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  if (name.size() > max) out += "...";
  return out;
}

}  // namespace spyre::formats
