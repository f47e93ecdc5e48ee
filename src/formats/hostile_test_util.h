// What the tests of hostile files share: run a reader on bytes, and hold it to the promise of refusing in one clear
// line and of not taking more than 64 MiB + 4 x the file before that.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"

namespace spyre::formats::testing {

// Bytes obtained through operator new since reset(), at their highest (alloc_meter_test.cc replaces the operators).
struct AllocMeter {
  static void reset();
  static size_t peak();
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

inline std::string data_path(const std::string& name) {
  return std::string(SPYRE_TEST_DATA) + "/formats/" + name;
}
inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
std::string le(T value) {
  std::string out(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  return out;
}

using Reader = std::function<void(std::span<const std::byte>)>;

// What a refusal says to a user: one line of printable ASCII that names the file.
inline void expect_fit_to_show(const std::string& message, std::string_view name) {
  EXPECT_NE(message.find(name), std::string::npos) << message << "\ndoes not name " << name;
  EXPECT_LT(message.size(), 1000u) << message;
  for (const char c : message)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f) << message;
}

// The error's text, or "" when the reader took the file, which it calls |name|. Any exception but Error fails the test.
inline std::string read_hostile(const Reader& reader, const std::string& file, std::string_view name = "hostile.") {
  // An exact copy on the heap: a sanitizer sees the first byte read past it.
  const std::unique_ptr<char[]> copy(new char[file.size()]);
  std::memcpy(copy.get(), file.data(), file.size());
  AllocMeter::reset();
  std::string message;
  try {
    reader(std::as_bytes(std::span(copy.get(), file.size())));
  } catch (const Error& error) {
    message = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported ||
                error.code() == ErrorCode::kResourceExhausted)
        << to_string(error.code()) << ": " << message;
    expect_fit_to_show(message, name);
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not an Error: " << other.what();
  }
  EXPECT_LE(AllocMeter::peak(), (size_t{64} << 20) + 4 * file.size());
  return message;
}

inline void expect_refused(const Reader& reader, const std::string& file, std::string_view expected,
                           std::string_view name = "hostile.") {
  const std::string message = read_hostile(reader, file, name);
  EXPECT_NE(message.find(expected), std::string::npos)
      << "expected: " << expected << "\ngot:      " << (message.empty() ? "(accepted)" : message);
}

}  // namespace spyre::formats::testing
