// DL16, the card's 16-bit number (its own name: SEN169_FP16): 1 sign bit, 6 exponent bits of bias 31, 9 mantissa bits.
//
//   value = (-1)^s (1 + m / 512) 2^(e - 31), also where e = 0: there are no subnormals            (H)
//   magnitude 0x0000 is zero, so the smallest number is 0x0001 = 2^-31 (1 + 1/512)                (H)
//   magnitude 0x7fff is the one code for infinity and NaN                                         (H)
//
// Marks say how sure a statement is: H stated by the format's owner or by several sources, M one good source, L second
// hand, INF worked out here, UNK not known. Where sources differ, or where the card's software has done one thing and
// will do another, there is a switch in Dl16Rules; the defaults are what the newest source says.
//
// Conversions work on raw words in plain integer arithmetic: every machine gives the same bits. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "base/half.h"

namespace spyre {

inline constexpr uint16_t kDl16Special = 0x7fff;   // the magnitude of infinity and NaN
inline constexpr uint16_t kDl16Smallest = 0x0001;  // 4.67e-10

// Which neighbour a number halfway between two becomes. The patent rounds ties up in magnitude (H); copies of spring
// 2026 took 683.5 to 683 and 604.5 to 605 (M), which is neither that, nor to even, nor toward zero: both fit ties to
// the odd neighbour (INF).
enum class Dl16Ties : uint8_t { kAway, kEven, kZero, kOdd };

// An fp16 subnormal comes back halved from a copy to the card and back (M, torch-spyre #4689). Which of the two ways
// halves is not known; here it is the way in (UNK).
enum class Dl16Subnormals : uint8_t { kAsShipped, kFixed };

// The largest finite number: 0x7ffe = 8.57e9 by the format (H), 0x7dff = 4.29e9 by the encoder of constants (M).
enum class Dl16Top : uint16_t { kFormat = 0x7ffe, kConstants = 0x7dff };

struct Dl16Rules {
  Dl16Ties ties = Dl16Ties::kAway;
  Dl16Subnormals subnormals = Dl16Subnormals::kAsShipped;
  Dl16Top top = Dl16Top::kFormat;
  bool operator==(const Dl16Rules&) const = default;
};

// Exact. The special code is an infinity of its sign: that is what masks are made of, and what copies keep (M, #2518).
inline float dl16_to_f32(uint16_t code) {
  const uint32_t sign = uint32_t{code & 0x8000u} << 16, magnitude = code & 0x7fffu;
  if (magnitude == 0) return std::bit_cast<float>(sign);
  if (magnitude == kDl16Special) return std::bit_cast<float>(sign | 0x7f800000u);
  return std::bit_cast<float>(sign | ((magnitude << 14) + (96u << 23)));
}

namespace dl16_detail {
// Whether a tie between |below| and the next code goes up.
constexpr bool tie_goes_up(Dl16Ties ties, uint32_t below) {
  switch (ties) {
    case Dl16Ties::kAway:
      return true;
    case Dl16Ties::kZero:
      return false;
    case Dl16Ties::kEven:
      return (below & 1u) != 0;
    case Dl16Ties::kOdd:
      return (below & 1u) == 0;
  }
  return true;
}
}  // namespace dl16_detail

// The result of an operation as it is stored: to nearest (H). Beyond the largest number lies the special code (INF), to
// which a NaN goes as well; its sign is then lost.
inline uint16_t f32_to_dl16(float f, const Dl16Rules& rules = {}) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (x >> 16) & 0x8000u, magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kDl16Special;
  constexpr uint32_t kSmallestBits = (96u << 23) + (1u << 14);  // of the smallest number, and of half of it
  constexpr uint32_t kHalfBits = (95u << 23) + (1u << 14);
  if (magnitude < kSmallestBits) {
    const bool up = magnitude > kHalfBits || (magnitude == kHalfBits && dl16_detail::tie_goes_up(rules.ties, 0));
    return static_cast<uint16_t>(sign | (up ? kDl16Smallest : 0u));
  }
  const uint32_t shifted = magnitude - (96u << 23);
  uint32_t code = shifted >> 14;
  const uint32_t rest = shifted & 0x3fffu;
  if (rest > 0x2000u || (rest == 0x2000u && dl16_detail::tie_goes_up(rules.ties, code))) ++code;
  if (code > static_cast<uint32_t>(rules.top)) code = kDl16Special;
  return static_cast<uint16_t>(sign | code);
}

// A constant of a program: as above, but what is finite and too large becomes the largest number (M).
inline uint16_t constant_to_dl16(float f, const Dl16Rules& rules = {}) {
  const uint16_t code = f32_to_dl16(f, rules);
  const bool finite = (std::bit_cast<uint32_t>(f) & 0x7f800000u) != 0x7f800000u;
  if ((code & 0x7fffu) != kDl16Special || !finite) return code;
  return static_cast<uint16_t>((code & 0x8000u) | static_cast<uint16_t>(rules.top));
}

// |f| as a DL16 stores it, in fp32 again.
inline float round_to_dl16(float f, const Dl16Rules& rules = {}) {
  return dl16_to_f32(f32_to_dl16(f, rules));
}

// ---- Copies: the conversions that the host makes before a transfer to the card, and after one from it.

// Drops one mantissa bit, so that every odd mantissa is a tie. A carry does not leave its binade: -65504 becomes -65472
// (M, #2518). Infinities stay; a NaN becomes the special code.
inline uint16_t f16_to_dl16(uint16_t h, const Dl16Rules& rules = {}) {
  const uint32_t sign = h & 0x8000u, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return static_cast<uint16_t>(mantissa != 0 ? kDl16Special : sign | kDl16Special);
  if (exponent == 0) {
    if (mantissa == 0) return static_cast<uint16_t>(sign);
    const int leading = 31 - std::countl_zero(mantissa);  // 0 .. 9: nine bits stay behind it at most
    const uint32_t field = static_cast<uint32_t>(leading) + 7u - (rules.subnormals == Dl16Subnormals::kAsShipped);
    return static_cast<uint16_t>(sign | (field << 9) | ((mantissa << (9 - leading)) & 0x1ffu));
  }
  uint32_t kept = mantissa >> 1;
  if ((mantissa & 1u) != 0 && kept != 0x1ffu && dl16_detail::tie_goes_up(rules.ties, kept)) ++kept;
  return static_cast<uint16_t>(sign | ((exponent + 16u) << 9) | kept);
}

// To nearest, ties to even, where an fp16 has fewer bits or no such exponent: which way the card's software rounds
// there is UNK. Above 65504 lies infinity.
inline uint16_t dl16_to_f16(uint16_t code) {
  return f32_to_f16(dl16_to_f32(code));
}

// Exact within DL16's range; else as the result of an operation.
inline uint16_t bf16_to_dl16(uint16_t h, const Dl16Rules& rules = {}) {
  return f32_to_dl16(bf16_to_f32(h), rules);
}

// Truncates two mantissa bits, toward zero (M, #2478).
inline uint16_t dl16_to_bf16(uint16_t code) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(dl16_to_f32(code)) >> 16);
}

}  // namespace spyre
