#include "plugins/spyre/device/card_types.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

constexpr std::array kTypes = {
    CardTypeInfo{CardType::kDl16, "SEN169_FP16", 16, "f16, bf16, bool", "H"},
    CardTypeInfo{CardType::kFp32, "IEEE_FP32", 32, "f32", "H"},
    CardTypeInfo{CardType::kInt32, "IEEE_INT32", 32, "i32, i64 (narrowed)", "H"},
    CardTypeInfo{CardType::kInt8, "SENINT8", 8, "i8", "H"},
    CardTypeInfo{CardType::kFp8E4M3, "SEN143_FP8", 8, "float8_e4m3", "H"},
    CardTypeInfo{CardType::kFp8E5M2, "SEN152_FP8", 8, "float8_e5m2", "H"},
    CardTypeInfo{CardType::kInt4, "SENINT4", 4, "packed int4", "H"},
};

}  // namespace

std::span<const CardTypeInfo> all_card_types() {
  return kTypes;
}

const CardTypeInfo& info(CardType type) {
  return kTypes[static_cast<size_t>(type)];
}

CardType card_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kBool:
      return CardType::kDl16;
    case DType::kF32:
      return CardType::kFp32;
    case DType::kI32:
    case DType::kI64:
      return CardType::kInt32;
    case DType::kI8:
      return CardType::kInt8;
    default:
      break;
  }
  refuse(Rule::kCardType, fmt::format("a tensor of {}", to_string(dtype)));
  return CardType::kFp32;
}

}  // namespace spyre::device
