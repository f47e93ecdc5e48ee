#include "plugins/spyre/device/host_conversion.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

template <typename From, typename To, typename Convert>
void each(const std::byte* from, int64_t n, std::byte* to, Convert&& convert) {
  for (int64_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To y = convert(x);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &y, sizeof(To));
  }
}

int32_t narrowed(int64_t x) {
  if (x < std::numeric_limits<int32_t>::min() || x > std::numeric_limits<int32_t>::max()) {
    refuse(Rule::kIntNarrowing, fmt::format("the int64 {} in a copy to the card", x));
  }
  return static_cast<int32_t>(x);
}

}  // namespace

void convert_to_card(DType dtype, const Conversion& conversion, const std::byte* host, int64_t n, std::byte* card) {
  const CardType type = card_type_of(dtype);
  const Dl16Rules rules = conversion.dl16.value_or(Dl16Rules{});
  if (dtype == DType::kI64) return each<int64_t, int32_t>(host, n, card, narrowed);
  if (dtype == DType::kBool) {
    const uint16_t one = conversion.dl16 ? f32_to_dl16(1, rules) : f32_to_f16(1);
    return each<uint8_t, uint16_t>(host, n, card, [&](uint8_t x) { return x != 0 ? one : uint16_t{0}; });
  }
  if (conversion.dl16 && dtype == DType::kF16) {
    return each<uint16_t, uint16_t>(host, n, card, [&](uint16_t x) { return f16_to_dl16(x, rules); });
  }
  if (conversion.dl16 && dtype == DType::kBF16) {
    return each<uint16_t, uint16_t>(host, n, card, [&](uint16_t x) { return bf16_to_dl16(x, rules); });
  }
  std::memcpy(card, host, static_cast<size_t>(n * bits_of(type) / 8));
}

void convert_to_host(DType dtype, const Conversion& conversion, const std::byte* card, int64_t n, std::byte* host) {
  const CardType type = card_type_of(dtype);
  if (dtype == DType::kI64) return each<int32_t, int64_t>(card, n, host, [](int32_t x) { return int64_t{x}; });
  if (dtype == DType::kBool) {
    return each<uint16_t, uint8_t>(card, n, host, [](uint16_t x) { return static_cast<uint8_t>((x & 0x7fffu) != 0); });
  }
  if (conversion.dl16 && dtype == DType::kF16) return each<uint16_t, uint16_t>(card, n, host, dl16_to_f16);
  if (conversion.dl16 && dtype == DType::kBF16) return each<uint16_t, uint16_t>(card, n, host, dl16_to_bf16);
  std::memcpy(host, card, static_cast<size_t>(n * bits_of(type) / 8));
}

}  // namespace spyre::device
