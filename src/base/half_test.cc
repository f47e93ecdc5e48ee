// The conversions against an oracle that shares nothing with them: codes are decoded by ldexp in double, and narrowing
// is a search among the decoded values of all codes for the nearest one, ties to the even code.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spyre {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits); }
};
constexpr Format kF16{5, 10};
constexpr Format kBF16{8, 7};

double decode(Format format, uint16_t code) {
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int exponent = (code >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = code & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits) + (exponent ? 1.0 : 0.0);
  return sign * std::ldexp(fraction, std::max(exponent, 1) - format.bias());
}

// Nearest finite code, or infinity from halfway between the largest finite value and the next power of two on.
class Narrowing {
 public:
  explicit Narrowing(Format format) : format_(format) {
    for (uint32_t code = 0; code < format.infinity(); ++code) values_.push_back(decode(format, code));
  }

  uint16_t operator()(float f) const {
    const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
    const double x = std::fabs(static_cast<double>(f));
    const double top = values_.back();
    if (x >= top + (top - values_[values_.size() - 2]) / 2) return sign | format_.infinity();
    const auto above = std::lower_bound(values_.begin(), values_.end(), x);
    if (above == values_.begin()) return sign;
    if (above == values_.end()) return static_cast<uint16_t>(sign | (values_.size() - 1));
    const auto high = static_cast<uint16_t>(above - values_.begin());
    const auto low = static_cast<uint16_t>(high - 1);
    const double to_high = values_[high] - x;
    const double to_low = x - values_[low];
    if (to_high == to_low) return sign | (high % 2 == 0 ? high : low);
    return sign | (to_high < to_low ? high : low);
  }

 private:
  Format format_;
  std::vector<double> values_;
};

bool is_nan(Format format, uint16_t code) {
  return (code & 0x7fff) > format.infinity();
}

TEST(Half, WideningOfAllF16Codes) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const double expected = decode(kF16, code);
    const float got = f16_to_f32(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(expected, got) << code;
      EXPECT_EQ(std::signbit(expected), std::signbit(got)) << code;
    }
  }
}

TEST(Half, WideningOfAllBF16Codes) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const double expected = decode(kBF16, code);
    const float got = bf16_to_f32(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(expected, got) << code;
      EXPECT_EQ(std::signbit(expected), std::signbit(got)) << code;
    }
  }
}

TEST(Half, EveryF16CodeSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint16_t back = f32_to_f16(f16_to_f32(code));
    if (is_nan(kF16, code)) {
      EXPECT_EQ(back, code | 0x0200) << "a NaN keeps its payload and becomes quiet";
    } else {
      EXPECT_EQ(back, code);
    }
  }
}

TEST(Half, EveryNormalBF16CodeSurvivesTheRoundTripAndSubnormalsFlushToSignedZero) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint16_t back = f32_to_bf16(bf16_to_f32(code));
    if (is_nan(kBF16, code)) {
      EXPECT_EQ(back, code | 0x0040);
    } else if ((code & 0x7f80) == 0) {
      EXPECT_EQ(back, code & 0x8000);
    } else {
      EXPECT_EQ(back, code);
    }
  }
}

// Every boundary of rounding: each code's value, the midpoint to the next one, and the floats on either side of both.
TEST(Half, NarrowingToF16AtEveryBoundary) {
  const Narrowing oracle(kF16);
  for (uint32_t code = 0; code < kF16.infinity(); ++code) {
    const auto value = static_cast<float>(decode(kF16, code));
    const double next = code + 1u < kF16.infinity() ? decode(kF16, code + 1) : 65536.0;
    const auto middle = static_cast<float>((value + next) / 2);
    for (float at : {value, middle}) {
      for (float x : {std::nextafter(at, 0.0f), at, std::nextafter(at, 1e30f)}) {
        ASSERT_EQ(f32_to_f16(x), oracle(x)) << x;
        ASSERT_EQ(f32_to_f16(-x), oracle(-x)) << -x;
      }
    }
  }
}

TEST(Half, NarrowingToBF16AtEveryBoundary) {
  const Narrowing oracle(kBF16);
  for (uint32_t code = 0x0080; code < kBF16.infinity(); ++code) {
    const auto value = static_cast<float>(decode(kBF16, code));
    // The midpoint of two bf16 codes is the float with bit 15 set between them.
    const float middle = std::bit_cast<float>((code << 16) | 0x8000u);
    for (float at : {value, middle}) {
      for (float x : {at, std::nextafter(at, std::numeric_limits<float>::infinity())}) {
        ASSERT_EQ(f32_to_bf16(x), oracle(x)) << x;
        ASSERT_EQ(f32_to_bf16(-x), oracle(-x)) << -x;
      }
    }
  }
}

TEST(Half, NarrowingOfRandomFloats) {
  const Narrowing to_f16(kF16), to_bf16(kBF16);
  std::mt19937 random(20240117);
  for (int i = 0; i < 300'000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) {
      EXPECT_TRUE(is_nan(kF16, f32_to_f16(x)));
      EXPECT_TRUE(is_nan(kBF16, f32_to_bf16(x)));
      continue;
    }
    ASSERT_EQ(f32_to_f16(x), to_f16(x)) << x;
    if (std::fabs(x) < std::numeric_limits<float>::min()) continue;  // bf16 flushes these
    ASSERT_EQ(f32_to_bf16(x), to_bf16(x)) << x;
  }
}

TEST(Half, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(infinity), 0x7c00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xfc00);
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00) << "halfway to 65536 is a tie, and goes to the even code";
  EXPECT_EQ(f32_to_f16(std::ldexp(1.0f, -25)), 0) << "half of the least subnormal is a tie, and goes to zero";
  EXPECT_EQ(f32_to_f16(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1);
  EXPECT_EQ(f32_to_bf16(infinity), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies in the bits that are cut off must not turn into infinity.
  EXPECT_TRUE(is_nan(kBF16, f32_to_bf16(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(is_nan(kF16, f32_to_f16(std::bit_cast<float>(0x7f800001u))));
}

}  // namespace
}  // namespace spyre
