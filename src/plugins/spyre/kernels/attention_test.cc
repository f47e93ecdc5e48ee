// The attention kernels of every instruction set of the machine against attend_reference, bit for bit; invariance of a
// row under everything around it; strangers' NaN in the pages.
#include "plugins/spyre/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/vector_math.h"
#include "plugins/spyre/kernels/kv_pages.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::kernels {
namespace {

using Words = std::vector<uint16_t>;
using Floats = std::vector<float>;

// A chunk of `positions` tokens at the end of a sequence of `length`, `group` query heads each.
struct Shape {
  int64_t d = 64;
  int64_t positions = 1;
  int64_t group = 1;
  int64_t length = 100;
  int64_t window = 0;  // 0: none
  float soft_cap = 0;
  int64_t block_size = 64;
  bool causal = true;
  std::optional<float> scale;  // without one 1 / sqrt(d)
  std::string name() const {
    return "d=" + std::to_string(d) + " positions=" + std::to_string(positions) + " group=" + std::to_string(group) +
           " length=" + std::to_string(length) + " window=" + std::to_string(window) +
           " cap=" + std::to_string(soft_cap) + " scale=" + (scale ? std::to_string(*scale) : "1/sqrt(d)");
  }
};

// What a row came to: the words, and the state before the last division and rounding, which would hide most
// differences.
struct Result {
  Words words;
  Floats l;    // [rows]
  Floats acc;  // [rows][d]
};

enum class Values { kNormal, kWide };  // kWide: exponents so far apart that products underflow, and zeros of both signs

// Random q, k and v for one shape, the pages they lie in, and the rows' results by attend_reference.
class Problem {
 public:
  Problem(DType dtype, DotOrder order, const Shape& shape, Values values = Values::kNormal, uint32_t seed = 1)
      : dtype_(dtype),
        order_(order),
        shape_(shape),
        rows_(shape.positions * shape.group),
        layout_(dtype, order, shape.block_size, 2, shape.d) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    const auto fill = [&](int64_t n) {
      Words w(n);
      for (auto& x : w) {
        float f = normal(random);
        if (values == Values::kWide) {
          f = std::ldexp(f, static_cast<int>(random() % 100) - (dtype == DType::kF16 ? 90 : 95));
          if (random() % 5 == 0) f = std::copysign(0.0f, f);
        }
        x = store_16bit(dtype, f);
      }
      return w;
    };
    q = fill(rows_ * shape.d);
    k = fill(shape.length * shape.d);
    v = fill(shape.length * shape.d);
    for (int64_t i = 0; i < shape.positions; ++i) {
      const int64_t hi = shape.causal ? shape.length - shape.positions + i + 1 : shape.length;
      visible.push_back({shape.window > 0 ? std::max<int64_t>(0, hi - shape.window) : 0, hi});
    }
    fill_pages();
  }

  int64_t rows() const { return rows_; }
  const Shape& shape() const { return shape_; }

  // Every slot that no row sees holds NaN.
  void fill_pages() {
    const int64_t pages = shape_.length / shape_.block_size + 1;
    pages_.assign(pages * layout_.page_words(), 0);
    const Words nan(shape_.d, dtype_ == DType::kF16 ? 0x7e01 : 0x7fc1);
    int64_t lo = shape_.length, hi = 0;
    for (const KeyInterval& i : visible) {
      if (i.lo >= i.hi) continue;
      lo = std::min(lo, i.lo);
      hi = std::max(hi, i.hi);
    }
    groups_.clear();
    for (int64_t t = 0; t < pages * shape_.block_size; ++t) {
      uint16_t* page = pages_.data() + t / shape_.block_size * layout_.page_words();
      const bool seen = lo <= t && t < hi;
      layout_.write(page, t % shape_.block_size, 1, seen ? &k[t * shape_.d] : nan.data(),
                    seen ? &v[t * shape_.d] : nan.data());
      if (t % kGroupTokens == 0) groups_.push_back(layout_.group(page, 1, t % shape_.block_size / kGroupTokens));
    }
  }

  Result reference() const {
    const Floats fq = widen(q), fk = widen(k), fv = widen(v);
    const AttentionMath math{dtype_, order_, scale(), shape_.soft_cap};
    Result result;
    Floats y(shape_.d), range_acc(shape_.d);
    for (int64_t r = 0; r < rows_; ++r) {
      const KeyInterval& i = visible[r / shape_.group];
      attend_reference(math, &fq[r * shape_.d], shape_.d, fk.data(), shape_.d, fv.data(), shape_.d, i.lo, i.hi,
                       y.data());
      for (float x : y) result.words.push_back(store_16bit(dtype_, x));
      AttentionState total;
      Floats acc(shape_.d, 0.0f);
      for (int64_t range = 0; range < shape_.length; range += kAttentionRange) {
        AttentionState state;
        std::fill(range_acc.begin(), range_acc.end(), 0.0f);
        for (int64_t step = range; step < std::min(range + kAttentionRange, shape_.length); step += kAttentionStep) {
          attend_step(math, &fq[r * shape_.d], shape_.d, &fk[step * shape_.d], shape_.d, &fv[step * shape_.d], shape_.d,
                      std::max<int64_t>(i.lo - step, 0), std::min(i.hi - step, kAttentionStep), state,
                      range_acc.data());
        }
        attend_merge(total, acc.data(), state, range_acc.data(), shape_.d);
      }
      result.l.push_back(total.l);
      result.acc.insert(result.acc.end(), acc.begin(), acc.end());
    }
    return result;
  }

  // Positions [first, first + count), the groups of a range dealt out in calls of at most `groups_per_call`. Ranges
  // that no row sees are visited too when `visit_all`.
  Result run(const AttentionKernels& kernels, int64_t first, int64_t count, int64_t groups_per_call = 8,
             bool visit_all = true) const {
    const int64_t rows = count * shape_.group, stride = attend_stride(shape_.d);
    Floats m(2 * rows), l(2 * rows), acc(2 * rows * stride + 16);
    const AttendState total{m.data(), l.data(), acc.data()};
    const AttendState part{m.data() + rows, l.data() + rows, acc.data() + rows * stride};
    attend_reset(total, rows, shape_.d);
    const int64_t group_count = static_cast<int64_t>(groups_.size());
    for (int64_t range = 0; range < group_count; range += kRangeGroups) {
      const int64_t end = std::min(range + kRangeGroups, group_count);
      const bool seen =
          std::any_of(visible.begin() + first, visible.begin() + first + count, [&](const KeyInterval& i) {
            return i.lo < i.hi && i.lo < end * kGroupTokens && i.hi > range * kGroupTokens;
          });
      if (!seen && !visit_all) continue;
      attend_reset(part, rows, shape_.d);
      for (int64_t g = range; g < end; g += groups_per_call) {
        AttendCall call;
        call.q = {q.data() + first * shape_.group * shape_.d, shape_.group, shape_.d, shape_.group * shape_.d};
        call.rows = rows;
        call.head_dim = shape_.d;
        call.visible = visible.data() + first;
        call.groups = groups_.data() + g;
        call.first_group = g;
        call.group_count = std::min(groups_per_call, end - g);
        call.scale = scale();
        call.soft_cap = shape_.soft_cap;
        call.state = part;
        kernels.attend(call);
      }
      kernels.merge(total, part, rows, shape_.d);
    }
    Result result;
    result.l.assign(l.begin(), l.begin() + rows);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = acc.data() + r * stride;
      result.acc.insert(result.acc.end(), row, row + shape_.d);
    }
    Words out(rows * shape_.d + 1, 0x1234);
    kernels.finish(total, rows, shape_.d, {out.data(), shape_.group, shape_.d, shape_.group * shape_.d});
    EXPECT_EQ(out.back(), 0x1234);
    out.pop_back();
    result.words = out;
    return result;
  }
  Result run(const AttentionKernels& kernels) const { return run(kernels, 0, shape_.positions); }

  Floats widen(const Words& w) const {
    Floats f(w.size());
    std::transform(w.begin(), w.end(), f.begin(), [&](uint16_t x) { return load_16bit(dtype_, x); });
    return f;
  }
  float scale() const { return shape_.scale.value_or(1.0f / std::sqrt(static_cast<float>(shape_.d))); }

  Words q, k, v;
  std::vector<KeyInterval> visible;  // one per position

 private:
  DType dtype_;
  DotOrder order_;
  Shape shape_;
  int64_t rows_;
  KvPageLayout layout_;
  Words pages_;
  std::vector<KvGroup> groups_;
};

void expect_equal(DType dtype, const Result& got, const Result& want, const std::string& what) {
  const auto equal_floats = [&](const Floats& a, const Floats& b, const char* name) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(b[i]) ? std::isnan(a[i]) : std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]))
        continue;
      FAIL() << what << " " << name << "[" << i << "]: got " << std::hexfloat << a[i] << ", want " << b[i];
    }
  };
  ASSERT_NO_FATAL_FAILURE(equal_floats(got.l, want.l, "l"));
  ASSERT_NO_FATAL_FAILURE(equal_floats(got.acc, want.acc, "acc"));
  const auto nan = [&](uint16_t w) { return (w & 0x7fff) > (dtype == DType::kF16 ? 0x7c00 : 0x7f80); };
  ASSERT_EQ(got.words.size(), want.words.size());
  for (size_t i = 0; i < got.words.size(); ++i) {
    if (nan(want.words[i]) ? nan(got.words[i]) : got.words[i] == want.words[i]) continue;
    FAIL() << what << " [" << i << "]: got " << std::hex << got.words[i] << ", want " << want.words[i];
  }
}

// Positions [first, first + count) of a result.
Result part_of(const Result& all, const Shape& shape, int64_t first, int64_t count) {
  const auto cut = [&](const auto& x, int64_t per_position) {
    return std::decay_t<decltype(x)>(x.begin() + first * per_position, x.begin() + (first + count) * per_position);
  };
  return {cut(all.words, shape.group * shape.d), cut(all.l, shape.group), cut(all.acc, shape.group * shape.d)};
}

struct Order {
  DType dtype;
  DotOrder order;
};
constexpr Order kOrders[] = {
    {DType::kF16, DotOrder::kSequential}, {DType::kBF16, DotOrder::kPair}, {DType::kBF16, DotOrder::kTile}};

void for_each_kernel(const Order& order, const std::function<void(const AttentionKernels&)>& check) {
  for (const AttentionKernels& kernels : all_attention_kernels()) {
    if (kernels.dtype != order.dtype || kernels.order != order.order) continue;
    if (level_runs_on(kernels.level, CpuFeatures::detected())) check(kernels);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void expect_reference(const Shape& shape, Values values = Values::kNormal) {
  ScopedFlushDenormals flush;
  for (const Order& order : kOrders) {
    const Problem problem(order.dtype, order.order, shape, values,
                          static_cast<uint32_t>(shape.length + 1000 * shape.d));
    const Result want = problem.reference();
    for_each_kernel(order, [&](const AttentionKernels& kernels) {
      ASSERT_NO_FATAL_FAILURE(
          expect_equal(order.dtype, problem.run(kernels), want, std::string(kernels.name) + " " + shape.name()));
    });
  }
}

TEST(Attention, EveryHeadSize) {
  for (int64_t d : {1, 5, 16, 31, 32, 33, 64, 80, 96, 128, 200, 256, 512}) {
    for (int64_t length : {1, 63, 130}) {
      ASSERT_NO_FATAL_FAILURE(expect_reference({.d = d, .group = 3, .length = length}));
      ASSERT_NO_FATAL_FAILURE(expect_reference({.d = d, .positions = std::min<int64_t>(length, 9), .length = length}));
    }
  }
}

// Rows that are packed together for a whole call, and rows too long for that.
TEST(Attention, LongRowsInGroups) {
  for (int64_t d : {96, 200, 512}) {
    for (int64_t group : {1, 3, 7}) {
      ASSERT_NO_FATAL_FAILURE(expect_reference({.d = d, .positions = 21, .group = group, .length = 90}));
    }
  }
}

TEST(Attention, EveryNumberOfRows) {
  for (int64_t positions = 1; positions <= 70; ++positions) {
    const int64_t d = positions % 3 == 0 ? 80 : 32;
    ASSERT_NO_FATAL_FAILURE(expect_reference({.d = d, .positions = positions, .length = 150}));
  }
  for (int64_t group = 1; group <= 16; ++group) {
    ASSERT_NO_FATAL_FAILURE(expect_reference({.d = 64, .positions = 3, .group = group, .length = 70}));
  }
}

TEST(Attention, EveryLengthAroundStepsAndRanges) {
  for (int64_t length : {1,   2,   15,  16,  17,  31,  32,  33,  63,   64,   65,   127,
                         128, 129, 511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 1300}) {
    for (int64_t positions : {1, 7, 64}) {
      if (positions > length) continue;
      ASSERT_NO_FATAL_FAILURE(expect_reference(
          {.d = 16, .positions = positions, .group = positions == 1 ? 3 : 1, .length = length, .block_size = 128}));
    }
  }
}

TEST(Attention, Windows) {
  for (int64_t window : {1, 2, 5, 63, 64, 65, 300, 512, 600}) {
    for (int64_t length : {64, 131, 700, 1300}) {
      for (int64_t positions : {1, 13, 40}) {
        ASSERT_NO_FATAL_FAILURE(
            expect_reference({.d = 32, .positions = positions, .group = 2, .length = length, .window = window}));
      }
    }
  }
}

TEST(Attention, SoftCapAndNoCausality) {
  ASSERT_NO_FATAL_FAILURE(expect_reference({.d = 64, .positions = 10, .group = 2, .length = 200, .soft_cap = 0.5f}));
  ASSERT_NO_FATAL_FAILURE(expect_reference({.d = 48, .positions = 33, .length = 600, .window = 70, .soft_cap = 30.0f}));
  ASSERT_NO_FATAL_FAILURE(expect_reference({.d = 64, .positions = 50, .length = 77, .causal = false}));
}

// The largest score is the scale times the largest product only where the scale keeps their order.
TEST(Attention, ScalesThatAreNotPositiveOrNotNormal) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float scale : {-0.125f, 0.0f, -0.0f, 1e-40f, 1.17549435e-38f, 3.0f, 3e38f, kInfinity, -kInfinity,
                      std::numeric_limits<float>::quiet_NaN()}) {
    for (int64_t positions : {1, 40}) {
      const Shape shape{.d = 32, .positions = positions, .group = 2, .length = 150, .window = 70, .scale = scale};
      ASSERT_NO_FATAL_FAILURE(expect_reference(shape));
    }
  }
}

// Scores around the least argument of exp, where its result is still a normal bf16 but defined as 0, and far below: a
// value of 2^100 shows a weight of 2^-126.
TEST(Attention, WeightsAroundTheLeastExponential) {
  ScopedFlushDenormals flush;
  for (float below : {86.0f, 87.3f, 87.3299942f, 87.33f, 87.3300095f, 87.335f, 87.3365f, 87.337f, 87.5f, 87.68f, 87.7f,
                      87.9f, 88.1f, 88.5f, 89.0f, 104.0f, 1e4f, 1e30f, 3e38f}) {
    for (const Order& order : kOrders) {
      Problem problem(order.dtype, order.order, {.d = 16, .positions = 3, .length = 150, .scale = below});
      const auto word = [&](float x) { return store_16bit(order.dtype, x); };
      std::fill(problem.q.begin(), problem.q.end(), word(0.0f));
      for (size_t i = 0; i < problem.q.size(); i += 16) problem.q[i] = word(1.0f);
      for (size_t t = 0; t < 150; ++t) {
        std::fill_n(problem.k.begin() + t * 16, 16, word(t % 64 == 5 ? 0.0f : -1.0f));  // scores 0 and -below
        std::fill_n(problem.v.begin() + t * 16, 16,
                    word(t % 64 == 5                  ? 0.0f
                         : order.dtype == DType::kF16 ? 6e4f
                                                      : std::ldexp(1.0f, 100)));
      }
      problem.fill_pages();
      const Result want = problem.reference();
      for_each_kernel(order, [&](const AttentionKernels& kernels) {
        ASSERT_NO_FATAL_FAILURE(
            expect_equal(order.dtype, problem.run(kernels), want, kernels.name + (" " + std::to_string(below))));
      });
    }
  }
}

TEST(Attention, ProductsThatUnderflowAndZerosOfBothSigns) {
  for (int64_t d : {16, 33, 64}) {
    for (int64_t length : {20, 64, 100, 600}) {
      for (int64_t positions : {1, 9}) {
        const Shape shape{.d = d, .positions = positions, .group = 2, .length = length, .window = 50};
        ASSERT_NO_FATAL_FAILURE(expect_reference(shape, Values::kWide));
      }
    }
  }
}

// The accumulator is -0 when the last visible keys add nothing: the masked keys behind them, zero products, make it +0.
TEST(Attention, MaskedKeysBehindTurnAMinusZeroIntoAPlusZero) {
  ScopedFlushDenormals flush;
  for (const Order& order : kOrders) {
    for (int64_t length : {64 + 37, 64 + 38, 128}) {
      Problem problem(order.dtype, order.order, {.d = 16, .positions = 1, .length = length});
      const auto word = [&](float x) { return store_16bit(order.dtype, x); };
      std::fill(problem.q.begin(), problem.q.end(), word(16.0f));
      for (int64_t t = 0; t < length; ++t) {
        // Scores -1600, then 0, then 1.28 at the last key: the first step's -64 shrinks to -0.
        const float key = t < 64 ? -25.0f : t == length - 1 ? 0.02f : 0.0f;
        std::fill_n(problem.k.begin() + t * 16, 16, word(key));
        // A product that underflows to -0 whatever stands before it, but at the last key, whose weight is 1.
        const float tiny = order.dtype == DType::kF16 || t == length - 1 ? -0.0f : -std::ldexp(1.0f, -126);
        std::fill_n(problem.v.begin() + t * 16, 16, word(t < 64 ? -1.0f : tiny));
      }
      problem.fill_pages();
      const Result want = problem.reference();
      EXPECT_EQ(std::signbit(want.acc[0]), length == 128);
      for_each_kernel(order, [&](const AttentionKernels& kernels) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(order.dtype, problem.run(kernels), want, kernels.name));
      });
    }
  }
}

TEST(Attention, ARowIsTheSameInAnyCompanyAndAnySplit) {
  ScopedFlushDenormals flush;
  for (const Order& order : kOrders) {
    for (const Shape& shape : {Shape{.d = 64, .positions = 67, .group = 1, .length = 700},
                               Shape{.d = 80, .positions = 20, .group = 3, .length = 1100, .window = 90}}) {
      const Problem problem(order.dtype, order.order, shape);
      for_each_kernel(order, [&](const AttentionKernels& kernels) {
        const Result together = problem.run(kernels);
        for (int64_t split : {1, 2, 3, 8}) {
          ASSERT_NO_FATAL_FAILURE(expect_equal(order.dtype, problem.run(kernels, 0, shape.positions, split), together,
                                               std::string(kernels.name) + " split " + std::to_string(split)));
        }
        for (int64_t chunk : {1, 2, 5, 19}) {
          for (int64_t first = 0; first < shape.positions; first += chunk) {
            const int64_t count = std::min(chunk, shape.positions - first);
            const Result want = part_of(together, shape, first, count);
            ASSERT_NO_FATAL_FAILURE(expect_equal(order.dtype, problem.run(kernels, first, count, 8, false), want,
                                                 std::string(kernels.name) + " chunk " + std::to_string(chunk)));
          }
        }
      });
    }
  }
}

TEST(Attention, LaterTokensOfTheSequenceCannotReachEarlierRows) {
  ScopedFlushDenormals flush;
  for (const Order& order : kOrders) {
    const Shape shape{.d = 32, .positions = 40, .group = 2, .length = 100};
    Problem problem(order.dtype, order.order, shape);
    const Words clean = problem.reference().words;
    const int64_t bad = 81;  // visible to positions from 81 - 60 = 21
    std::fill_n(problem.v.begin() + bad * shape.d, shape.d, order.dtype == DType::kF16 ? 0x7e00 : 0x7fc0);
    std::fill_n(problem.k.begin() + bad * shape.d, shape.d, order.dtype == DType::kF16 ? 0x7c00 : 0x7f80);
    problem.fill_pages();
    const Result want = problem.reference();
    const int64_t words = 21 * shape.group * shape.d;
    ASSERT_TRUE(std::equal(clean.begin(), clean.begin() + words, want.words.begin()));
    ASSERT_FALSE(std::equal(clean.begin() + words, clean.end(), want.words.begin() + words));
    for_each_kernel(order, [&](const AttentionKernels& kernels) {
      ASSERT_NO_FATAL_FAILURE(expect_equal(order.dtype, problem.run(kernels), want, kernels.name));
    });
  }
}

TEST(Attention, RowsWithUnrelatedIntervalsShareACall) {
  ScopedFlushDenormals flush;
  std::mt19937 random(5);
  for (const Order& order : kOrders) {
    for (int round = 0; round < 10; ++round) {
      Problem problem(order.dtype, order.order, {.d = 16, .positions = 23, .group = 1, .length = 600});
      for (KeyInterval& i : problem.visible) {
        i.lo = static_cast<int64_t>(random() % 600);
        i.hi = i.lo + static_cast<int64_t>(random() % (random() % 2 != 0 ? 5 : 601 - i.lo));
        if (random() % 8 == 0) i.hi = i.lo - 3;  // nothing
      }
      for (KeyInterval& i : problem.visible) i.hi = std::min<int64_t>(i.hi, 600);
      problem.fill_pages();
      const Result want = problem.reference();
      for_each_kernel(order, [&](const AttentionKernels& kernels) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(order.dtype, problem.run(kernels), want, kernels.name));
      });
    }
  }
}

TEST(Attention, AgreesWithDoublePrecision) {
  ScopedFlushDenormals flush;
  for (const Order& order : kOrders) {
    const Shape shape{.d = 64, .positions = 5, .group = 1, .length = 900};
    const Problem problem(order.dtype, order.order, shape);
    const Floats q = problem.widen(problem.q), k = problem.widen(problem.k), v = problem.widen(problem.v);
    for_each_kernel(order, [&](const AttentionKernels& kernels) {
      const Floats got = problem.widen(problem.run(kernels).words);
      for (int64_t r = 0; r < shape.positions; ++r) {
        std::vector<double> want(shape.d, 0.0);
        double total = 0;
        for (int64_t t = 0; t < problem.visible[r].hi; ++t) {
          double s = 0;
          for (int64_t d = 0; d < shape.d; ++d) s += double{q[r * shape.d + d]} * k[t * shape.d + d];
          const double p = std::exp(s * problem.scale());
          total += p;
          for (int64_t d = 0; d < shape.d; ++d) want[d] += p * v[t * shape.d + d];
        }
        for (int64_t d = 0; d < shape.d; ++d) {
          ASSERT_NEAR(got[r * shape.d + d], want[d] / total, order.dtype == DType::kF16 ? 3e-4 : 2e-3) << kernels.name;
        }
      }
    });
  }
}

TEST(Attention, TheChoiceFollowsTheFeaturesTheDtypeAndTheOrder) {
  EXPECT_STREQ(select_attention_kernels({}, DType::kF16, DotOrder::kSequential).name, "attention_f16_portable");
  EXPECT_STREQ(select_attention_kernels({}, DType::kBF16, DotOrder::kTile).name, "attention_bf16_tile_portable");
#if defined(__x86_64__)
  EXPECT_STREQ(select_attention_kernels(CpuFeatures::of(CpuLevel::kAvx2), DType::kBF16, DotOrder::kPair).name,
               "attention_bf16_pair_avx2");
  EXPECT_STREQ(select_attention_kernels(CpuFeatures::of(CpuLevel::kAmx), DType::kBF16, DotOrder::kTile).name,
               "attention_bf16_tile_avx512_bf16");
#endif
  EXPECT_THROW(select_attention_kernels({}, DType::kF16, DotOrder::kPair), Error);
  EXPECT_THROW(select_attention_kernels({}, DType::kF32, DotOrder::kSequential), Error);
}

}  // namespace
}  // namespace spyre::kernels
