#include "base/dl16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spyre {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The value of a code by the format's formula, in double.
double value_of(uint32_t code) {
  const double sign = (code & 0x8000u) != 0 ? -1 : 1;
  const uint32_t magnitude = code & 0x7fffu;
  if (magnitude == 0) return 0 * sign;
  if (magnitude == 0x7fffu) return sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(1 + (magnitude & 0x1ffu) / 512.0, static_cast<int>(magnitude >> 9) - 31);
}

// The code nearest to |x| >= 0 by comparing distances in double; ties by |ties|.
uint16_t nearest(double x, Dl16Ties ties, uint32_t top = 0x7ffe) {
  uint32_t low = 0, high = 0x7ffe;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of(middle) <= x ? low : high) = middle;
  }
  // Past the largest number its next neighbour would be one step on.
  const double above = low == 0x7ffe ? std::ldexp(2 - 1 / 512.0, 32) : value_of(high);
  if (x >= value_of(0x7ffe)) low = 0x7ffe, high = 0x7fff;
  const double up = (x >= value_of(0x7ffe) ? std::ldexp(1 + 511 / 512.0, 32) : above) - x, down = x - value_of(low);
  uint32_t code = up < down ? high : low;
  if (up == down) {
    const bool low_is_odd = (low & 1u) != 0;
    code = ties == Dl16Ties::kAway                  ? high
           : ties == Dl16Ties::kZero                ? low
           : (ties == Dl16Ties::kOdd) == low_is_odd ? low
                                                    : high;
  }
  return static_cast<uint16_t>(code > top ? 0x7fff : code);
}

const Dl16Ties kAllTies[] = {Dl16Ties::kAway, Dl16Ties::kEven, Dl16Ties::kZero, Dl16Ties::kOdd};

TEST(Dl16, EveryCodeHasTheValueOfTheFormat) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float decoded = dl16_to_f32(static_cast<uint16_t>(code));
    ASSERT_EQ(static_cast<double>(decoded), value_of(code)) << code;
    ASSERT_EQ(std::signbit(decoded), (code & 0x8000u) != 0) << code;
  }
}

TEST(Dl16, PublishedCodes) {
  EXPECT_EQ(dl16_to_f32(0x3e00), 1.0f);
  EXPECT_EQ(dl16_to_f32(0x2e00), 0x1p-8f);
  EXPECT_EQ(dl16_to_f32(0x1000), 0x1p-23f);
  EXPECT_NEAR(dl16_to_f32(0x0001), 4.67e-10, 0.005e-10);
  EXPECT_NEAR(dl16_to_f32(0x7ffe), 8.57e9, 0.005e9);
  EXPECT_NEAR(dl16_to_f32(0x7dff), 4.29e9, 0.005e9);
}

TEST(Dl16, EveryCodeComesBackFromFp32) {
  for (const Dl16Ties ties : kAllTies) {
    for (uint32_t code = 0; code < 0x10000; ++code) {
      ASSERT_EQ(f32_to_dl16(dl16_to_f32(static_cast<uint16_t>(code)), {.ties = ties}), code);
    }
  }
}

// Every midpoint of two neighbours, and the fp32 numbers just below and above it.
TEST(Dl16, MidpointsFollowTheTieRule) {
  for (const Dl16Ties ties : kAllTies) {
    for (uint32_t code = 0; code < 0x7ffe; ++code) {
      const auto middle = static_cast<float>((value_of(code) + value_of(code + 1)) / 2);
      ASSERT_EQ(static_cast<double>(middle), (value_of(code) + value_of(code + 1)) / 2);
      for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, kInf)}) {
        const uint16_t expected = nearest(x, ties);
        ASSERT_EQ(f32_to_dl16(x, {.ties = ties}), expected) << code << " " << x;
        ASSERT_EQ(f32_to_dl16(-x, {.ties = ties}), expected | 0x8000u) << code << " " << x;
      }
    }
  }
}

TEST(Dl16, RandomNumbersGoToTheNearest) {
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    // Exponents around the whole range of the format.
    const float x =
        std::ldexp(1 + static_cast<float>(random() % (1u << 23)) * 0x1p-23f, static_cast<int>(random() % 72) - 36);
    for (const Dl16Ties ties : kAllTies) ASSERT_EQ(f32_to_dl16(x, {.ties = ties}), nearest(x, ties)) << x;
  }
}

TEST(Dl16, SpecialValues) {
  EXPECT_EQ(f32_to_dl16(kInf), 0x7fff);
  EXPECT_EQ(f32_to_dl16(-kInf), 0xffff);
  EXPECT_EQ(f32_to_dl16(kNaN), 0x7fff);
  EXPECT_EQ(f32_to_dl16(-kNaN), 0x7fff);
  EXPECT_EQ(f32_to_dl16(-0.0f), 0x8000);
  EXPECT_EQ(f32_to_dl16(0x1p-140f), 0);  // an fp32 subnormal
  EXPECT_EQ(f32_to_dl16(std::numeric_limits<float>::max()), 0x7fff);
  // 2^-31 itself has no code: its neighbours are zero and the smallest number.
  EXPECT_EQ(f32_to_dl16(0x1p-31f, {.ties = Dl16Ties::kZero}), 1);
}

TEST(Dl16, TheTopIsASwitch) {
  const Dl16Rules constants{.top = Dl16Top::kConstants};
  EXPECT_EQ(f32_to_dl16(5e9f), f32_to_dl16(5e9f, {.ties = Dl16Ties::kEven}));
  EXPECT_LT(f32_to_dl16(5e9f), 0x7fff);
  EXPECT_EQ(f32_to_dl16(5e9f, constants), 0x7fff);
  EXPECT_EQ(f32_to_dl16(-5e9f, constants), 0xffff);
  EXPECT_EQ(f32_to_dl16(4.29e9f, constants), 0x7dff);
}

TEST(Dl16, ConstantsAreClamped) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(constant_to_dl16(largest), 0x7ffe);
  EXPECT_EQ(constant_to_dl16(-largest), 0xfffe);
  EXPECT_EQ(constant_to_dl16(largest, {.top = Dl16Top::kConstants}), 0x7dff);
  EXPECT_EQ(constant_to_dl16(-kInf), 0xffff);
  EXPECT_EQ(constant_to_dl16(kNaN), 0x7fff);
  EXPECT_EQ(constant_to_dl16(0.5f), 0x3c00);
}

// ---------------------------------------------------------------- copies

TEST(Dl16, EveryFp16CrossesByTheRule) {
  for (const Dl16Ties ties : kAllTies) {
    for (const Dl16Subnormals subnormals : {Dl16Subnormals::kAsShipped, Dl16Subnormals::kFixed}) {
      const Dl16Rules rules{.ties = ties, .subnormals = subnormals};
      for (uint32_t h = 0; h < 0x10000; ++h) {
        const double x = f16_to_f32(static_cast<uint16_t>(h));
        const uint16_t code = f16_to_dl16(static_cast<uint16_t>(h), rules);
        if (std::isnan(x)) {
          ASSERT_EQ(code, 0x7fff);
          continue;
        }
        ASSERT_EQ(code & 0x8000u, h & 0x8000u);
        if (std::isinf(x)) {
          ASSERT_EQ(code & 0x7fffu, 0x7fffu);
        } else if (x != 0 && std::fabs(x) < 0x1p-14) {
          ASSERT_EQ(value_of(code), subnormals == Dl16Subnormals::kFixed ? x : x / 2) << h;
        } else {
          uint16_t expected = nearest(std::fabs(x), ties);
          int binade = 0, mine = 0;
          (void)std::frexp(x, &binade);
          (void)std::frexp(value_of(expected), &mine);
          if (mine > binade) --expected;  // the carry stays within
          ASSERT_EQ(code & 0x7fffu, expected) << h;
        }
      }
    }
  }
}

TEST(Dl16, PublishedCopies) {
  const auto trip = [](float x, const Dl16Rules& rules) {
    return f16_to_f32(dl16_to_f16(f16_to_dl16(f32_to_f16(x), rules)));
  };
  EXPECT_EQ(trip(-65504, {}), -65472);
  EXPECT_EQ(trip(65504, {}), 65472);
  EXPECT_EQ(trip(-kInf, {}), -kInf);
  // Both ties of spring 2026.
  EXPECT_EQ(trip(683.5f, {.ties = Dl16Ties::kOdd}), 683);
  EXPECT_EQ(trip(604.5f, {.ties = Dl16Ties::kOdd}), 605);
  EXPECT_EQ(trip(683.5f, {.ties = Dl16Ties::kAway}), 684);
  EXPECT_EQ(trip(604.5f, {.ties = Dl16Ties::kZero}), 604);
  // Halved on each conversion, until nothing is left.
  EXPECT_EQ(trip(0x1p-20f, {}), 0x1p-21f);
  EXPECT_EQ(trip(0x1p-20f, {.subnormals = Dl16Subnormals::kFixed}), 0x1p-20f);
  EXPECT_EQ(trip(trip(0x1p-20f, {}), {}), 0x1p-22f);
}

TEST(Dl16, EveryCodeCrossesBackToFp16) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const double x = value_of(code), y = f16_to_f32(dl16_to_f16(static_cast<uint16_t>(code)));
    if (std::fabs(x) >= 65536) {
      ASSERT_EQ(y, std::copysign(std::numeric_limits<double>::infinity(), x));
    } else if (std::fabs(x) >= 0x1p-14) {
      ASSERT_EQ(y, x);
    } else {
      ASSERT_LE(std::fabs(y - x), 0x1p-25) << code;
    }
  }
}

TEST(Dl16, Bf16IsExactOnTheWayInAndTruncatedOnTheWayBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float x = bf16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(x) || std::fabs(x) < 0x1p-30f || std::fabs(x) > 0x1p32f) continue;
    ASSERT_EQ(value_of(bf16_to_dl16(static_cast<uint16_t>(h))), x);
    ASSERT_EQ(dl16_to_bf16(bf16_to_dl16(static_cast<uint16_t>(h))), h);
  }
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const double x = value_of(code), y = bf16_to_f32(dl16_to_bf16(static_cast<uint16_t>(code)));
    ASSERT_LE(std::fabs(y), std::fabs(x));
    if (std::isfinite(x) && x != 0) {
      ASSERT_GT(std::fabs(y), std::fabs(x) * (1 - 1 / 128.0));
    }
  }
}

}  // namespace
}  // namespace spyre
