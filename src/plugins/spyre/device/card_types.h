// The element types of the card, and what the host's types become there. Source of names and widths: torch-spyre and
// its interface specifications. Marks: H stated by the owner, M one good source, INF worked out here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace spyre::device {

inline constexpr int64_t kStickBytes = 128;

enum class CardType : uint8_t { kDl16, kFp32, kInt32, kInt8, kFp8E4M3, kFp8E5M2, kInt4 };

struct CardTypeInfo {
  CardType type;
  std::string_view name;  // the card's own
  int bits;
  std::string_view holds;       // host types, in words
  std::string_view confidence;  // H, M
};

std::span<const CardTypeInfo> all_card_types();
const CardTypeInfo& info(CardType type);

inline int bits_of(CardType type) {
  return info(type).bits;
}
// 32 .. 256
inline int64_t stick_elements(CardType type) {
  return kStickBytes * 8 / bits_of(type);
}

// f16, bf16 and bool (two bytes) become DL16; i64 is narrowed to i32. Throws Error(kRuleViolation), L-23, for what the
// card has no type for.
CardType card_type_of(DType dtype);

inline int64_t stick_elements(DType dtype) {
  return stick_elements(card_type_of(dtype));
}

}  // namespace spyre::device
