// What the GEMM tests share: random operands, the naive loop, comparison bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/half.h"
#include "plugins/spyre/kernels/kernel_table.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::kernels::testing {

inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline uint16_t round16(DType dtype, float x) {
  return dtype == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
}
inline float widen16(DType dtype, uint16_t x) {
  return dtype == DType::kF16 ? f16_to_f32(x) : bf16_to_f32(x);
}

inline std::vector<uint16_t> normal_values(DType dtype, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> out(static_cast<size_t>(count));
  for (auto& v : out) v = round16(dtype, normal(random));
  return out;
}

// Any bit pattern: infinities, NaNs, subnormals, zeros of both signs, extreme exponents.
inline std::vector<uint16_t> any_bits(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> out(static_cast<size_t>(count));
  for (auto& v : out) v = static_cast<uint16_t>(random() >> 7);
  return out;
}

// a [rows, k] with leading dimension lda, weight w row-major [k, n], and their product in the named order.
struct Product {
  DType dtype;
  DotOrder order;
  int64_t rows, k, n, lda;
  std::vector<uint16_t> a, w, panels;
  std::vector<float> want;

  Product(DType dtype_, DotOrder order_, int64_t rows_, int64_t k_, int64_t n_, int64_t lda_, std::vector<uint16_t> a_,
          std::vector<uint16_t> w_)
      : dtype(dtype_), order(order_), rows(rows_), k(k_), n(n_), lda(lda_), a(std::move(a_)), w(std::move(w_)) {
    const PanelLayout layout{order, k, n};
    // 0x7fff everywhere (a NaN): an element that packing forgets shows.
    panels.assign(static_cast<size_t>(layout.elements()), 0x7fff);
    pack_panels(layout, SourceOrder::kInOut, w.data(), n, 0, n, panels.data());
    want.resize(static_cast<size_t>(rows * n));
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t c = 0; c < n; ++c) {
        want[static_cast<size_t>(m * n + c)] = dot(order, a.data() + m * lda, w.data() + c, k, n);
      }
    }
  }

  static Product random(DType dtype, DotOrder order, int64_t rows, int64_t k, int64_t n, uint32_t seed,
                        int64_t lda_extra = 0) {
    return {dtype,
            order,
            rows,
            k,
            n,
            k + lda_extra,
            normal_values(dtype, rows * (k + lda_extra), seed),
            normal_values(dtype, k * n, seed + 1)};
  }

  GemmCall call(void* out, int64_t ldo, GemmStore store = GemmStore::kF32) const {
    return {.a = a.data(),
            .lda = lda,
            .rows = rows,
            .panels = panels.data(),
            .k = k,
            .first_column = 0,
            .columns = n,
            .out = out,
            .ldo = ldo,
            .store = store};
  }

  // Runs `gemm` on the first `m` rows and compares; writes one line on the first difference.
  ::testing::AssertionResult check(void (*gemm)(const GemmCall&), int64_t m) const {
    const int64_t ldo = n + 3;
    std::vector<float> out(static_cast<size_t>(m * ldo), -7.5f);
    GemmCall c = call(out.data(), ldo);
    c.rows = m;
    gemm(c);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < ldo; ++j) {
        const float got = out[static_cast<size_t>(r * ldo + j)];
        const float expected = j < n ? want[static_cast<size_t>(r * n + j)] : -7.5f;
        if (!same_bits(got, expected)) {
          return ::testing::AssertionFailure() << "rows " << m << " k " << k << " n " << n << ": element (" << r << ", "
                                               << j << ") is " << got << ", not " << expected;
        }
      }
    }
    return ::testing::AssertionSuccess();
  }

  // One call over `ranges` on the first `m` rows, summing on from what stands in the result when `accumulate`: those
  // columns have the bits of a call for each range, and no other is touched.
  ::testing::AssertionResult check_ranges(void (*gemm)(const GemmCall&), int64_t m,
                                          const std::vector<GemmRange>& ranges, bool accumulate) const {
    std::vector<float> together(static_cast<size_t>(m * n), -7.5f), apart = together;
    GemmCall c = call(together.data(), n);
    c.rows = m;
    c.accumulate = accumulate;
    c.first_column = ranges[0].first_column;
    c.columns = ranges[0].columns;
    c.more = ranges.data() + 1;
    c.more_count = std::ssize(ranges) - 1;
    gemm(c);
    c.out = apart.data();
    c.more_count = 0;
    for (const GemmRange& range : ranges) {
      c.first_column = range.first_column;
      c.columns = range.columns;
      gemm(c);
      for (int64_t i = 0; !accumulate && i < m * range.columns; ++i) {
        const auto at = static_cast<size_t>(i / range.columns * n + range.first_column + i % range.columns);
        if (!same_bits(apart[at], want[at])) return ::testing::AssertionFailure() << "apart, element " << at;
      }
    }
    for (size_t i = 0; i < together.size(); ++i) {
      if (!same_bits(together[i], apart[i])) {
        return ::testing::AssertionFailure() << "rows " << m << " k " << k << " n " << n << ": element " << i << " is "
                                             << together[i] << ", not " << apart[i];
      }
    }
    return ::testing::AssertionSuccess();
  }
};

// Random disjoint ranges of [0, n) in no order, cut at multiples of 16 (the last may end at n); at least one.
inline std::vector<GemmRange> random_ranges(int64_t n, std::mt19937& random) {
  std::vector<GemmRange> out;
  for (int64_t column = 0; column < n;) {
    const int64_t columns = std::min<int64_t>(n - column, 16 * static_cast<int64_t>(1 + random() % 9));
    // A range may end inside a vector of sixteen: the columns behind it are somebody else's.
    if (random() % 4 != 0)
      out.push_back({column, columns - static_cast<int64_t>(random() % 3 == 0 ? random() % 16 : 0)});
    column += columns;
    if (!out.empty() && out.back().columns <= 0) out.pop_back();
  }
  if (out.empty()) out.push_back({0, n});
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

inline std::vector<GemmKernels> kernels_here() {
  std::vector<GemmKernels> out;
  for (const GemmKernels& k : all_gemm_kernels()) {
    if (runs_on(k, CpuFeatures::detected())) out.push_back(k);
  }
  return out;
}

inline void PrintTo(const GemmKernels& k, std::ostream* out) {
  *out << k.name;
}

}  // namespace spyre::kernels::testing
