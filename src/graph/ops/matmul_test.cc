#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/cpu.h"
#include "base/half.h"
#include "base/vector_math.h"
#include "graph/ops/dot_rows.h"
#include "graph/ops/op_testing.h"

namespace spyre::graph {
namespace {

using testing::evaluate;
using testing::floats;
using testing::violation;

const testing::Operand kX{"f16[@2,3]", {1, 2, 3, 4, 5, 6}};

TEST(Matmul, ConstantsInConstantsOut) {
  const Array y = evaluate("matmul", {kX, {"f16[3,2]", {1, 0, 0, 1, 2, 2}}});
  EXPECT_EQ(y.type().to_string(), "f16[@2,2]");
  EXPECT_EQ(floats(y), (std::vector<float>{7, 8, 16, 17}));
  EXPECT_EQ(floats(evaluate("matmul", {{"f16[3]", {1, 2, 3}}, {"f16[3,1]", {1, 1, 1}}})), (std::vector<float>{6}));
}
TEST(Matmul, Batched) {
  const Array y = evaluate("matmul", {{"f16[2,@1,2]", {1, 2, 3, 4}}, {"f16[2,2,1]", {1, 1, 1, 10}}});
  EXPECT_EQ(y.type().to_string(), "f16[2,@1,1]");
  EXPECT_EQ(floats(y), (std::vector<float>{3, 43}));
}
TEST(Matmul, ARoundedResultOrTheAccumulator) {
  const testing::Operand x{"f16[1,2]", {2048, 1}}, w{"f16[2,1]", {1, 1}};
  EXPECT_EQ(floats(evaluate("matmul", {x, w})), (std::vector<float>{2048}));
  const Array y = evaluate("matmul", {x, w}, "{dtype=\"f32\"}");
  EXPECT_EQ(y.type().to_string(), "f32[1,1]");
  EXPECT_EQ(floats(y), (std::vector<float>{2049}));
  EXPECT_EQ(floats(evaluate("matmul", {x, w}, "", EvalMode::kFp32)), (std::vector<float>{2049}));
}
TEST(Matmul, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("matmul C1", violation("matmul", {"f16[2,3]", "bf16[3,2]"}));
}
TEST(Matmul, C2_Ranks) {
  SPYRE_EXPECT_VIOLATION("matmul C2", violation("matmul", {"f16[]", "f16[3,2]"}));
  SPYRE_EXPECT_VIOLATION("matmul C2", violation("matmul", {"f16[2,3]", "f16[3]"}));
}
TEST(Matmul, C3_InnerExtent) {
  const std::string message = violation("matmul", {"f16[2,576]", "f16[577,2]"});
  SPYRE_EXPECT_VIOLATION("matmul C3", message);
  EXPECT_THAT(message, ::testing::EndsWith("K of x is 576 and K of w is 577"));
}
TEST(Matmul, C4_NoRowsInK) {
  SPYRE_EXPECT_VIOLATION("matmul C4", violation("matmul", {"f16[2,@3]", "f16[3,2]"}));
  SPYRE_EXPECT_VIOLATION("matmul C4", violation("matmul", {"f16[2,3]", "f16[3,@2]"}));
}
TEST(Matmul, C5_Batches) {
  SPYRE_EXPECT_VIOLATION("matmul C5", violation("matmul", {"f16[2,2,3]", "f16[3,3,2]"}));
  SPYRE_EXPECT_VIOLATION("matmul C5", violation("matmul", {"f16[2,3]", "f16[2,3,2]"}));
  SPYRE_EXPECT_VIOLATION("matmul C5", violation("matmul", {"f16[@2,2,3]", "f16[2,3,2]"}));
}
TEST(Matmul, C6_Dtype) {
  SPYRE_EXPECT_VIOLATION("matmul C6", violation("matmul", {"f16[2,3]", "f16[3,2]"}, "{dtype=\"f16\"}"));
}

TEST(Linear, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("linear", {kX, {"f16[2,3]", {1, 0, 2, 0, 1, 2}}})), (std::vector<float>{7, 8, 16, 17}));
}
TEST(Linear, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("linear C1", violation("linear", {"f16[2,3]", "f32[2,3]"}));
}
TEST(Linear, C2_Ranks) {
  SPYRE_EXPECT_VIOLATION("linear C2", violation("linear", {"f16[2,3]", "f16[1,2,3]"}));
}
TEST(Linear, C3_InnerExtent) {
  SPYRE_EXPECT_VIOLATION("linear C3", violation("linear", {"f16[2,3]", "f16[3,2]"}));
}
TEST(Linear, C4_NoRowsInK) {
  SPYRE_EXPECT_VIOLATION("linear C4", violation("linear", {"f16[2,@3]", "f16[2,3]"}));
}
TEST(Linear, C5_Dtype) {
  SPYRE_EXPECT_VIOLATION("linear C5", violation("linear", {"f16[2,3]", "f16[2,3]"}, "{dtype=\"x\"}"));
}

// dot_rows against the scalar definition, bit for bit, around every blocking edge and for both storage forms of w.
struct Case {
  DType dtype;
  DotOrder order;
  float largest;  // exponent range of the operands, as a power of two
};

void check_dot_rows(const Case& c, int64_t rows, int64_t k, int64_t n, std::mt19937& random) {
  const auto words = [&](int64_t count) {
    std::vector<uint16_t> out(count);
    std::uniform_real_distribution<float> exponent(-c.largest, c.largest), mantissa(1, 2);
    for (uint16_t& word : out) {
      const float x = std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
      word = store_16bit(c.dtype, random() % 2 ? x : -x);
      if (random() % 16 == 0) word = 0x8000 * (random() % 2);
    }
    return out;
  };
  const auto widened = [&](const std::vector<uint16_t>& in) {
    std::vector<float> out;
    for (const uint16_t word : in) out.push_back(load_16bit(c.dtype, word));
    return out;
  };
  const std::vector<uint16_t> x = words(rows * k), w = words(k * n);
  const std::vector<float> xf = widened(x), wf = widened(w);
  std::vector<float> transposed(k * n);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) transposed[j * k + i] = wf[i * n + j];
  }
  for (const bool linear : {false, true}) {
    std::vector<float> out(rows * n, -1);
    dot_rows({.x = xf.data(),
              .w = linear ? transposed.data() : wf.data(),
              .out = out.data(),
              .rows = rows,
              .k = k,
              .n = n,
              .k_stride = linear ? 1 : n,
              .n_stride = linear ? k : 1,
              .order = c.order,
              .bf16 = c.dtype == DType::kBF16});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const float expected = dot(c.order, x.data() + r * k, w.data() + j, k, n);
        const float got = out[r * n + j];
        if (std::isnan(expected) && std::isnan(got)) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected))
            << to_string(c.order) << " rows " << rows << " k " << k << " n " << n << " at " << r << "," << j << ": "
            << got << " for " << expected;
      }
    }
  }
}

TEST(DotRows, HasTheBitsOfTheScalarForms) {
  const ScopedFlushDenormals flush;
  std::mt19937 random(11);
  for (const Case& c : {Case{DType::kF16, DotOrder::kSequential, 12}, Case{DType::kBF16, DotOrder::kPair, 20},
                        Case{DType::kBF16, DotOrder::kTile, 20}, Case{DType::kBF16, DotOrder::kPair, 120},
                        Case{DType::kBF16, DotOrder::kTile, 120}}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 9}) {
      for (const int64_t k : {1, 2, 3, 31, 32, 33, 64, 95}) {
        for (const int64_t n : {1, 15, 16, 17, 40}) check_dot_rows(c, rows, k, n, random);
      }
    }
  }
}

TEST(DotRows, CarriesInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1, infinity, 0, 2}, w = {1, 1, infinity, 1};
  std::vector<float> out(4);
  dot_rows({.x = x.data(),
            .w = w.data(),
            .out = out.data(),
            .rows = 2,
            .k = 2,
            .n = 2,
            .k_stride = 2,
            .n_stride = 1,
            .order = DotOrder::kPair,
            .bf16 = true});
  EXPECT_EQ(out[0], infinity);
  EXPECT_EQ(out[1], infinity);
  EXPECT_EQ(out[2], infinity);
  EXPECT_EQ(out[3], 2);
}

}  // namespace
}  // namespace spyre::graph
