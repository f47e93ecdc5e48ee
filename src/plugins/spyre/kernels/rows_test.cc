// Every row kernel on every instruction set of the machine against the scalar definitions, bit for bit.
#include "plugins/spyre/kernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/vector_math.h"

namespace spyre::kernels {
namespace {

constexpr int64_t kSizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,
                              14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 576, 1000};

using Words = std::vector<uint16_t>;
using Floats = std::vector<float>;

bool is_nan_word(DType dtype, uint16_t w) {
  return dtype == DType::kF16 ? (w & 0x7fff) > 0x7c00 : (w & 0x7fff) > 0x7f80;
}

enum class Kind { kNormal, kSpecial };

// Normal numbers, or any bit pattern at all with the special values among them.
Words random_words(DType dtype, int64_t n, uint32_t seed, Kind kind) {
  std::mt19937 random(seed * 2654435761u + static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(0, 1.5f);
  const std::vector<uint16_t> f16 = {0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x83ff, 0x7bff, 0x0400};
  const std::vector<uint16_t> bf16 = {0,      0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80,
                                      0x7fc0, 0x0001, 0x807f, 0x7f7f, 0x0080};
  const auto& special = dtype == DType::kF16 ? f16 : bf16;
  Words w(n);
  for (auto& x : w) {
    if (kind == Kind::kNormal) {
      x = store_16bit(dtype, normal(random));
    } else {
      x = random() % 2 != 0 ? special[random() % special.size()] : static_cast<uint16_t>(random());
      // A signalling NaN is made quiet by whichever instruction meets it first; arithmetic never makes one.
      if (is_nan_word(dtype, x)) x |= dtype == DType::kF16 ? 0x200 : 0x40;
    }
  }
  return w;
}

Floats widen(DType dtype, const Words& w) {
  Floats f(w.size());
  std::transform(w.begin(), w.end(), f.begin(), [&](uint16_t x) { return load_16bit(dtype, x); });
  return f;
}

// A row of n words that begins `shift` words past a 64-byte boundary, between guards that must survive.
class Row {
 public:
  Row(int64_t n, int64_t shift) : memory_(n + 128, kGuard), n_(n) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = static_cast<int64_t>((64 - address % 64) % 64 / 2) + shift + 32;
  }
  Row(const Words& w, int64_t shift) : Row(static_cast<int64_t>(w.size()), shift) {
    std::copy(w.begin(), w.end(), data());
  }
  uint16_t* data() { return memory_.data() + start_; }
  Words words() { return Words(data(), data() + n_); }
  bool guards_intact() {
    const auto same = [](uint16_t x) { return x == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + start_, same) &&
           std::all_of(memory_.begin() + start_ + n_, memory_.end(), same);
  }

 private:
  static constexpr uint16_t kGuard = 0x5a5a;
  std::vector<uint16_t> memory_;
  int64_t start_ = 0;
  int64_t n_;
};

void expect_words(DType dtype, const Words& got, const Floats& want, const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i) {
    const uint16_t w = store_16bit(dtype, want[i]);
    if (is_nan_word(dtype, w) ? is_nan_word(dtype, got[i]) : got[i] == w) continue;
    FAIL() << what << " [" << i << "] of " << got.size() << ": got " << std::hex << got[i] << ", want " << w;
  }
}

struct Case {
  const RowKernels& kernels;
  DType dtype;
  int64_t n;
  int64_t shift;
  Kind kind;
  std::string name() const {
    return std::string(kernels.name) + " n=" + std::to_string(n) + " shift=" + std::to_string(shift) +
           (kind == Kind::kSpecial ? " special" : "");
  }
  Words words(uint32_t seed) const { return random_words(dtype, n, seed, kind); }
};

void for_each_case(const std::function<void(const Case&)>& check) {
  ScopedFlushDenormals flush;
  for (const RowKernels& kernels : all_row_kernels()) {
    if (!level_runs_on(kernels.level, CpuFeatures::detected())) continue;
    for (int64_t n : kSizes) {
      for (Kind kind : {Kind::kNormal, Kind::kSpecial}) check({kernels, kernels.dtype, n, n % 7, kind});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

float unary_reference(UnaryOp op, float x) {
  switch (op) {
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kAbs:
      return std::fabs(x);
    case UnaryOp::kSqrt:
      return std::sqrt(x);
    case UnaryOp::kRsqrt:
      return rsqrt_f32(x);
    case UnaryOp::kReciprocal:
      return 1.0f / x;
    case UnaryOp::kExp:
      return exp_f32(x);
    case UnaryOp::kLog:
      return log_f32(x);
    case UnaryOp::kTanh:
      return tanh_f32(x);
    case UnaryOp::kSigmoid:
      return sigmoid_f32(x);
    case UnaryOp::kSilu:
      return silu_f32(x);
    case UnaryOp::kRelu:
      return relu_f32(x);
    case UnaryOp::kGelu:
      return gelu_f32(x);
    case UnaryOp::kGeluTanh:
      return gelu_tanh_f32(x);
  }
  return 0;
}

float binary_reference(BinaryOp op, float a, float b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMaximum:
      return maximum_f32(a, b);
    case BinaryOp::kMinimum:
      return minimum_f32(a, b);
  }
  return 0;
}

// Runs write(out) into a fresh row; nothing outside the row may change.
void expect_row(const Case& c, const Floats& want, const std::string& what,
                const std::function<void(uint16_t*)>& write) {
  Row out(static_cast<int64_t>(want.size()), (c.shift + 3) % 8);
  write(out.data());
  expect_words(c.dtype, out.words(), want, c.name() + " " + what);
  ASSERT_TRUE(out.guards_intact()) << c.name() << " " << what;
}

TEST(RowKernels, EveryWordThroughEveryUnaryFunction) {
  ScopedFlushDenormals flush;
  Words all;
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    all.clear();
    for (uint32_t w = 0; w < 0x10000; ++w) {
      if (!is_nan_word(dtype, static_cast<uint16_t>(w))) all.push_back(static_cast<uint16_t>(w));
    }
    for (int i = 0; i < kUnaryOps; ++i) {
      const auto op = static_cast<UnaryOp>(i);
      Floats want = widen(dtype, all);
      for (float& x : want) x = unary_reference(op, x);
      for (const RowKernels& kernels : all_row_kernels()) {
        if (kernels.dtype != dtype || !level_runs_on(kernels.level, CpuFeatures::detected())) continue;
        Words got(all.size());
        kernels.unary(op, all.data(), got.data(), static_cast<int64_t>(all.size()));
        ASSERT_NO_FATAL_FAILURE(
            expect_words(dtype, got, want, std::string(kernels.name) + " unary " + std::to_string(i)));
      }
    }
  }
}

TEST(RowKernels, UnaryAtAnySizeAndInPlace) {
  for_each_case([](const Case& c) {
    for (int i = 0; i < kUnaryOps; ++i) {
      const auto op = static_cast<UnaryOp>(i);
      Row x(c.words(1), c.shift);
      Floats want = widen(c.dtype, x.words());
      for (float& v : want) v = unary_reference(op, v);
      ASSERT_NO_FATAL_FAILURE(
          expect_row(c, want, "unary", [&](uint16_t* y) { c.kernels.unary(op, x.data(), y, c.n); }));
      c.kernels.unary(op, x.data(), x.data(), c.n);
      ASSERT_NO_FATAL_FAILURE(expect_words(c.dtype, x.words(), want, c.name() + " unary in place"));
    }
  });
}

TEST(RowKernels, BinaryWithARowAndWithANumber) {
  for_each_case([](const Case& c) {
    for (int i = 0; i < kBinaryOps; ++i) {
      const auto op = static_cast<BinaryOp>(i);
      Row a(c.words(1), c.shift), b(c.words(2), (c.shift + 1) % 8);
      const Floats fa = widen(c.dtype, a.words()), fb = widen(c.dtype, b.words());
      const float number = fb[0];
      Floats want(c.n), want_number(c.n);
      for (int64_t j = 0; j < c.n; ++j) {
        want[j] = binary_reference(op, fa[j], fb[j]);
        want_number[j] = binary_reference(op, fa[j], number);
      }
      ASSERT_NO_FATAL_FAILURE(
          expect_row(c, want, "binary", [&](uint16_t* y) { c.kernels.binary(op, a.data(), b.data(), y, c.n); }));
      ASSERT_NO_FATAL_FAILURE(expect_row(c, want_number, "binary_scalar",
                                         [&](uint16_t* y) { c.kernels.binary_scalar(op, a.data(), number, y, c.n); }));
      c.kernels.binary(op, a.data(), b.data(), b.data(), c.n);
      ASSERT_NO_FATAL_FAILURE(expect_words(c.dtype, b.words(), want, c.name() + " binary in place"));
    }
  });
}

TEST(RowKernels, ActivateMulRoundsBetween) {
  for_each_case([](const Case& c) {
    for (UnaryOp op : {UnaryOp::kSilu, UnaryOp::kGelu, UnaryOp::kGeluTanh}) {
      Row g(c.words(1), c.shift), u(c.words(2), (c.shift + 5) % 8);
      const Floats fg = widen(c.dtype, g.words()), fu = widen(c.dtype, u.words());
      Floats want(c.n);
      for (int64_t j = 0; j < c.n; ++j) want[j] = round_to(c.dtype, unary_reference(op, fg[j])) * fu[j];
      ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "activate_mul",
                                         [&](uint16_t* y) { c.kernels.activate_mul(op, g.data(), u.data(), y, c.n); }));
    }
  });
}

TEST(RowKernels, Norms) {
  for_each_case([](const Case& c) {
    Row x(c.words(1), c.shift), r(c.words(2), (c.shift + 1) % 8), w(c.words(3), (c.shift + 2) % 8), b(c.words(4), 0);
    const Floats fx = widen(c.dtype, x.words()), fr = widen(c.dtype, r.words());
    const Floats fw = widen(c.dtype, w.words()), fb = widen(c.dtype, b.words());
    const float eps = 1e-5f;
    Floats want(c.n), sum(c.n);
    rms_norm_row(c.dtype, fx.data(), fw.data(), eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(
        expect_row(c, want, "rms_norm", [&](uint16_t* y) { c.kernels.rms_norm(x.data(), w.data(), eps, y, c.n); }));
    rms_norm_row(c.dtype, fx.data(), nullptr, eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "rms_norm without weight",
                                       [&](uint16_t* y) { c.kernels.rms_norm(x.data(), nullptr, eps, y, c.n); }));
    layer_norm_row(c.dtype, fx.data(), fw.data(), fb.data(), eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(
        c, want, "layer_norm", [&](uint16_t* y) { c.kernels.layer_norm(x.data(), w.data(), b.data(), eps, y, c.n); }));
    layer_norm_row(c.dtype, fx.data(), fw.data(), nullptr, eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "layer_norm without bias", [&](uint16_t* y) {
      c.kernels.layer_norm(x.data(), w.data(), nullptr, eps, y, c.n);
    }));
    for (int64_t i = 0; i < c.n; ++i) sum[i] = round_to(c.dtype, fx[i] + fr[i]);
    rms_norm_row(c.dtype, sum.data(), fw.data(), eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "add_rms_norm", [&](uint16_t* y) {
      c.kernels.add_rms_norm(x.data(), r.data(), w.data(), eps, r.data(), y, c.n);  // the sum in place of the residual
    }));
    ASSERT_NO_FATAL_FAILURE(expect_words(c.dtype, r.words(), sum, c.name() + " the sum of add_rms_norm"));
  });
}

// The residual stream in fp32: a sum that is not rounded, a norm that is rounded once.
TEST(RowKernels, WideNorms) {
  for_each_case([](const Case& c) {
    std::mt19937 random(static_cast<uint32_t>(c.n));
    std::normal_distribution<float> normal(0, 3.0f);
    Row x(c.words(1), c.shift), w(c.words(3), (c.shift + 2) % 8);
    const Floats fx = widen(c.dtype, x.words()), fw = widen(c.dtype, w.words());
    const float eps = 1e-5f, guard = 123.0f;
    const int64_t shift = c.shift % 4;
    Floats stream(c.n + shift + 1, guard);
    for (int64_t i = 0; i < c.n; ++i) stream[shift + i] = normal(random);
    if (c.kind == Kind::kSpecial) stream[shift + c.n / 2] = std::numeric_limits<float>::infinity();
    Floats want(c.n), sum(c.n);
    rms_norm_row(DType::kF32, stream.data() + shift, fw.data(), eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "rms_norm_wide", [&](uint16_t* y) {
      c.kernels.rms_norm_wide(stream.data() + shift, w.data(), eps, y, c.n);
    }));
    for (int64_t i = 0; i < c.n; ++i) sum[i] = fx[i] + stream[shift + i];
    rms_norm_row(DType::kF32, sum.data(), fw.data(), eps, want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "add_rms_norm_wide", [&](uint16_t* y) {
      float* residual = stream.data() + shift;  // the sum in its place
      c.kernels.add_rms_norm_wide(x.data(), residual, w.data(), eps, residual, y, c.n);
    }));
    for (int64_t i = 0; i < c.n; ++i) {
      const float got = stream[shift + i];
      ASSERT_TRUE(std::isnan(sum[i]) ? std::isnan(got)
                                     : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(sum[i]))
          << c.name() << " the sum of add_rms_norm_wide " << i;
    }
    EXPECT_EQ(stream.back(), guard) << c.name();
  });
}

TEST(RowKernels, SoftmaxAndReductions) {
  for_each_case([](const Case& c) {
    Row x(c.words(1), c.shift);
    const Floats fx = widen(c.dtype, x.words());
    Floats want(c.n);
    softmax_row(c.dtype, fx.data(), want.data(), c.n);
    ASSERT_NO_FATAL_FAILURE(expect_row(c, want, "softmax", [&](uint16_t* y) { c.kernels.softmax(x.data(), y, c.n); }));
    const Floats reduced = {reduce_sum_row(c.dtype, fx.data(), c.n), reduce_mean_row(c.dtype, fx.data(), c.n),
                            reduce_max_row(fx.data(), c.n)};
    Words got;
    for (int i = 0; i < kReduceOps; ++i) got.push_back(c.kernels.reduce(static_cast<ReduceOp>(i), x.data(), c.n));
    ASSERT_NO_FATAL_FAILURE(expect_words(c.dtype, got, reduced, c.name() + " reduce"));
  });
}

TEST(RowKernels, ReduceKeepsTheSignOfANegativeZeroPastTheEnd) {
  ScopedFlushDenormals flush;
  for (const RowKernels& kernels : all_row_kernels()) {
    if (!level_runs_on(kernels.level, CpuFeatures::detected())) continue;
    const Words x(17, 0x8000);
    EXPECT_EQ(kernels.reduce(ReduceOp::kMax, x.data(), 17), 0x8000) << kernels.name;
    EXPECT_EQ(kernels.reduce(ReduceOp::kSum, x.data(), 17), 0) << kernels.name;  // lanes start at +0
  }
}

TEST(RowKernels, RotateHalfOutOfPlaceAndInPlace) {
  for_each_case([](const Case& c) {
    if (c.n > 256) return;
    const int64_t d = 2 * c.n;
    Row x(random_words(c.dtype, d, 1, c.kind), c.shift), cos(c.words(2), (c.shift + 1) % 8), sin(c.words(3), 3);
    const Floats fx = widen(c.dtype, x.words()), fc = widen(c.dtype, cos.words()), fs = widen(c.dtype, sin.words());
    Floats want(d);
    rotate_half_row(c.dtype, fx.data(), fc.data(), fs.data(), want.data(), d);
    ASSERT_NO_FATAL_FAILURE(expect_row(
        c, want, "rotate_half", [&](uint16_t* y) { c.kernels.rotate_half(x.data(), cos.data(), sin.data(), y, d); }));
    c.kernels.rotate_half(x.data(), cos.data(), sin.data(), x.data(), d);
    ASSERT_NO_FATAL_FAILURE(expect_words(c.dtype, x.words(), want, c.name() + " rotate_half in place"));
  });
}

TEST(RowKernels, ConvertBothWays) {
  for_each_case([](const Case& c) {
    Row x(c.words(1), c.shift);
    Floats wide(c.n + 1, 123.0f);
    c.kernels.to_f32(x.data(), wide.data(), c.n);
    EXPECT_EQ(wide[c.n], 123.0f);
    const Floats want = widen(c.dtype, x.words());
    for (int64_t i = 0; i < c.n; ++i) {
      ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(wide[i])
                                      : std::bit_cast<uint32_t>(want[i]) == std::bit_cast<uint32_t>(wide[i]))
          << c.name() << " to_f32 " << i;
    }
    std::mt19937 random(static_cast<uint32_t>(c.n));
    Floats any(c.n);
    for (float& v : any) {
      do {
        v = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xffffffffu);
        if (c.dtype == DType::kF16 && random() % 2) v = std::ldexp(v - std::trunc(v), -static_cast<int>(random() % 30));
      } while (std::isnan(v));
    }
    ASSERT_NO_FATAL_FAILURE(
        expect_row(c, any, "from_f32", [&](uint16_t* y) { c.kernels.from_f32(any.data(), y, c.n); }));
  });
}

TEST(RowKernels, AllFiniteFindsOneBadElementAnywhere) {
  for_each_case([](const Case& c) {
    Row x(random_words(c.dtype, c.n, 1, Kind::kNormal), c.shift);
    ASSERT_TRUE(c.kernels.all_finite(x.data(), c.n)) << c.name();
    for (int64_t i = 0; i < c.n; i += std::max<int64_t>(1, c.n / 40)) {
      const uint16_t before = x.data()[i];
      for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        x.data()[i] = store_16bit(c.dtype, c.kind == Kind::kNormal ? bad : -bad);
        ASSERT_FALSE(c.kernels.all_finite(x.data(), c.n)) << c.name() << " at " << i;
      }
      x.data()[i] = before;
    }
    x.data()[c.n] = store_16bit(c.dtype, std::numeric_limits<float>::quiet_NaN());  // past the end
    ASSERT_TRUE(c.kernels.all_finite(x.data(), c.n)) << c.name();
  });
}

TEST(RowKernels, CopyRowTakesTheIndexedRow) {
  const Words table = {1, 2, 3, 4, 5, 6};
  Words y(2);
  copy_row(table.data(), 2, 2, y.data());
  EXPECT_EQ(y, (Words{5, 6}));
}

TEST(RowKernels, TheChoiceFollowsTheFeaturesAndTheDtype) {
  EXPECT_STREQ(select_row_kernels({}, DType::kF16).name, "f16_portable");
  EXPECT_STREQ(select_row_kernels({}, DType::kBF16).name, "bf16_portable");
#if defined(__x86_64__)
  EXPECT_STREQ(select_row_kernels(CpuFeatures::of(CpuLevel::kAvx2), DType::kF16).name, "f16_avx2");
  EXPECT_STREQ(select_row_kernels(CpuFeatures::of(CpuLevel::kAvx512), DType::kBF16).name, "bf16_avx512");
  EXPECT_STREQ(select_row_kernels(CpuFeatures::of(CpuLevel::kAvx512Bf16), DType::kBF16).name, "bf16_avx512_bf16");
  EXPECT_STREQ(select_row_kernels(CpuFeatures::of(CpuLevel::kAmx), DType::kBF16).name, "bf16_avx512_bf16");
#endif
  EXPECT_THROW(select_row_kernels({}, DType::kF32), Error);
}

}  // namespace
}  // namespace spyre::kernels
