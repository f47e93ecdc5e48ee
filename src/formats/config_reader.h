// Typed, range-checked access to one JSON object. Absent and null are the same. Every error names file, key and value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "formats/bytes.h"

namespace spyre::formats {

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const {
    const nlohmann::json* value = find(key);
    if (!value) return std::nullopt;
    return integer(*value, key, least, most);
  }
  // Also a float without a fraction (8192.0), which some exporters write.
  int64_t integer(const nlohmann::json& value, const char* key, int64_t least, int64_t most) const {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      range(key, value, least, most);
    } else if (value.is_number_integer()) {
      const auto exact = value.get<int64_t>();
      if (exact < least || exact > most) range(key, value, least, most);
      return exact;
    } else if (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>()) {
      const auto number = value.get<double>();
      if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most) && std::abs(number) < 9e15))
        range(key, value, least, most);
      return static_cast<int64_t>(number);
    }
    wrong(key, value, "an integer");
  }
  int64_t required_integer(const char* key, int64_t least, int64_t most) const {
    return need(key, integer(key, least, most));
  }

  std::optional<double> number(const char* key, double least, double most) const {
    const nlohmann::json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number()) wrong(key, *value, "a number");
    const double out = value->get<double>();
    if (!(out >= least && out <= most)) range(key, *value, least, most);
    return out;
  }
  double required_number(const char* key, double least, double most) const {
    return need(key, number(key, least, most));
  }

  std::optional<bool> boolean(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) wrong(key, *value, "true or false");
    return value->get<bool>();
  }

  std::optional<std::string> string(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) wrong(key, *value, "a string");
    auto text = value->get<std::string>();
    if (text.size() > 256) wrong(key, *value, "a string of at most 256 bytes");
    return text;
  }

  const nlohmann::json* object(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value && !value->is_object()) wrong(key, *value, "an object");
    return value;
  }

  [[noreturn]] void wrong(const char* key, const nlohmann::json& value, const char* wanted) const {
    throw_error(ErrorCode::kCorruptData, "{}: {}{} is {}; {} is expected", file_, prefix_, key, shown(value), wanted);
  }
  const std::string& file() const { return file_; }

  // A value as shown in a message: scalars as written, containers by kind (dumping a deep tree would recurse).
  static std::string shown(const nlohmann::json& value) {
    if (value.is_structured()) return value.is_array() ? "an array" : "an object";
    if (value.is_string()) return "'" + printable(value.get_ref<const std::string&>(), 60) + "'";
    return value.dump();
  }

 private:
  template <typename T>
  [[noreturn]] void range(const char* key, const nlohmann::json& value, T least, T most) const {
    throw_error(ErrorCode::kCorruptData, "{}: {}{} is {}; it must be {} to {}", file_, prefix_, key, shown(value),
                least, most);
  }
  template <typename T>
  T need(const char* key, std::optional<T> value) const {
    if (!value) throw_error(ErrorCode::kCorruptData, "{}: {}{} is missing", file_, prefix_, key);
    return *value;
  }

  const nlohmann::json& object_;
  std::string file_, prefix_;
};

}  // namespace spyre::formats
