// Finding things by name without hashing: an array of indices sorted by name. Sorting takes n log n whatever a hostile
// file holds, where a hash table can be made to collide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/bytes.h"

namespace spyre::formats {

// Fills `order`; returns a name that stands twice, fit for a message, if there is one.
template <typename T, typename Name>
std::optional<std::string> sort_by_name(const std::vector<T>& items, Name T::* name, std::vector<uint32_t>& order) {
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return items[a].*name < items[b].*name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (items[order[i - 1]].*name == items[order[i]].*name) return printable(items[order[i]].*name);
  return std::nullopt;
}

// The index of the item called `wanted`, or nullptr.
template <typename T, typename Name>
const uint32_t* find_by_name(const std::vector<T>& items, Name T::* name, const std::vector<uint32_t>& order,
                             std::string_view wanted) {
  const auto found = std::lower_bound(order.begin(), order.end(), wanted,
                                      [&](uint32_t i, std::string_view w) { return items[i].*name < w; });
  return found == order.end() || items[*found].*name != wanted ? nullptr : &*found;
}

}  // namespace spyre::formats
