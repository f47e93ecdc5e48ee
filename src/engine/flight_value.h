// Values of a recording, read as what they must be. A recording may come from anywhere: no number is narrowed, wrapped
// or rounded to fit, and what is wrong is named by its place: "steps[3].new[0].sampling.top_k".
//
// A view of a JSON value that lives longer. Errors are kCorruptData, one line.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/config_reader.h"

namespace spyre::engine {

class FlightValue {
 public:
  explicit FlightValue(const nlohmann::json& json, std::string place = "") : json_(json), place_(std::move(place)) {}

  // A member: at() demands it, find() gives nothing where there is none.
  FlightValue at(const char* name) const {
    auto found = find(name);
    if (!found) throw_error(ErrorCode::kCorruptData, "{} is missing", member(name));
    return std::move(*found);
  }
  std::optional<FlightValue> find(const char* name) const {
    if (!json_.is_object()) wrong("an object");
    const auto found = json_.find(name);
    if (found == json_.end()) return std::nullopt;
    return FlightValue(*found, member(name));
  }

  std::vector<FlightValue> entries() const {
    if (!json_.is_array()) wrong("a list");
    std::vector<FlightValue> out;
    for (size_t i = 0; i < json_.size(); ++i) out.push_back(entry(i));
    return out;
  }

  // bool, an integer type, float, double, std::string, and vectors and pairs of these. Integers are written without a
  // fraction and must fit their type; floats must be finite in theirs.
  template <typename T>
  T as() const {
    if constexpr (IsVector<T>::value) {
      if (!json_.is_array()) wrong("a list");
      T out;
      out.reserve(json_.size());
      for (size_t i = 0; i < json_.size(); ++i) out.push_back(read_entry<typename T::value_type>(i));
      return out;
    } else if constexpr (IsPair<T>::value) {
      if (!json_.is_array() || json_.size() != 2) wrong("a list of two");
      return {read_entry<typename T::first_type>(0), read_entry<typename T::second_type>(1)};
    } else {
      std::optional<T> out = scalar<T>(json_);
      if (!out) wrong(kind<T>());
      return std::move(*out);
    }
  }

  [[noreturn]] void wrong(std::string_view expected) const {
    throw_error(ErrorCode::kCorruptData, "{} is {}; {} is expected", place_.empty() ? "the file" : place_,
                formats::ConfigReader::shown(json_), expected);
  }

 private:
  template <typename T>
  struct IsVector : std::false_type {};
  template <typename E>
  struct IsVector<std::vector<E>> : std::true_type {};
  template <typename T>
  struct IsPair : std::false_type {};
  template <typename A, typename B>
  struct IsPair<std::pair<A, B>> : std::true_type {};

  std::string member(const char* name) const { return place_.empty() ? name : place_ + "." + name; }
  FlightValue entry(size_t i) const { return FlightValue(json_[i], fmt::format("{}[{}]", place_, i)); }

  // Histories are long lists of numbers: a place is made for an entry that is wrong, not for each.
  template <typename T>
  T read_entry(size_t i) const {
    if constexpr (!IsVector<T>::value && !IsPair<T>::value) {
      if (std::optional<T> out = scalar<T>(json_[i])) return std::move(*out);
    }
    return entry(i).template as<T>();
  }

  template <typename T>
  static std::optional<T> scalar(const nlohmann::json& json) {
    if constexpr (std::is_same_v<T, bool>) {
      if (json.is_boolean()) return json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      if (json.is_number_unsigned()) {
        const auto value = json.get<uint64_t>();
        if (std::in_range<T>(value)) return static_cast<T>(value);
      } else if (json.is_number_integer()) {
        const auto value = json.get<int64_t>();
        if (std::in_range<T>(value)) return static_cast<T>(value);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      if (json.is_number() && std::abs(json.get<double>()) <= static_cast<double>(std::numeric_limits<T>::max()))
        return static_cast<T>(json.get<double>());
    } else {
      static_assert(std::is_same_v<T, std::string>);
      if (json.is_string()) return json.get<std::string>();
    }
    return std::nullopt;
  }

  template <typename T>
  static std::string kind() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_same_v<T, std::string>) return "a text";
    if constexpr (std::is_floating_point_v<T>)
      return fmt::format("a number within {:.2g}", std::numeric_limits<T>::max());
    if constexpr (std::is_integral_v<T>)
      return fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }

  const nlohmann::json& json_;
  std::string place_;
};

}  // namespace spyre::engine
