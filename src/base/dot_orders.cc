#include "base/dot_orders.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/half.h"

namespace spyre {

std::string_view to_string(DotOrder order) {
  switch (order) {
    case DotOrder::kSequential:
      return "sequential";
    case DotOrder::kPair:
      return "pair";
    case DotOrder::kTile:
      return "tile";
  }
  return "?";
}

OrderChoice parse_order_choice(std::string_view name) {
  if (name == "auto") return OrderChoice::kAuto;
  if (name == "pair") return OrderChoice::kPair;
  if (name == "tile") return OrderChoice::kTile;
  throw_error(ErrorCode::kInvalidArgument, "order '{}' is none of auto, pair, tile", name);
}

DotOrder resolve_order(DType dtype, OrderChoice choice, const CpuFeatures& uncapped) {
  if (dtype != DType::kBF16) return DotOrder::kSequential;
  switch (choice) {
    case OrderChoice::kAuto:
      return uncapped.amx_bf16 ? DotOrder::kTile : DotOrder::kPair;
    case OrderChoice::kPair:
      return DotOrder::kPair;
    case OrderChoice::kTile:
      return DotOrder::kTile;
  }
  return DotOrder::kPair;
}

float fma_of_16bit(float a, float b, float c) {
  const float product = a * b;
  const float magnitude = std::fabs(product);
  if (magnitude >= std::numeric_limits<float>::min() && magnitude <= std::numeric_limits<float>::max()) {
    return c + product;
  }
  return std::fma(a, b, c);
}

float dot_sequential_f32(const float* a, const float* b, int64_t k, int64_t b_stride, float start) {
  float c = start;
  for (int64_t i = 0; i < k; ++i) c = c + a[i] * b[i * b_stride];
  return c;
}

float dot_sequential_f16(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride, float start) {
  float c = start;
  for (int64_t i = 0; i < k; ++i) c = fma_of_16bit(f16_to_f32(a[i]), f16_to_f32(b[i * b_stride]), c);
  return c;
}

float dot_pair(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride, float start) {
  const auto at_a = [&](int64_t i) { return i < k ? bf16_to_f32(a[i]) : 0.0f; };
  const auto at_b = [&](int64_t i) { return i < k ? bf16_to_f32(b[i * b_stride]) : 0.0f; };
  float c = start;
  for (int64_t i = 0; i < k; i += 2) {
    c = fma_of_16bit(at_a(i), at_b(i), fma_of_16bit(at_a(i + 1), at_b(i + 1), c));
  }
  return c;
}

float dot_tile(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride, float start) {
  const auto at_a = [&](int64_t i) { return i < k ? bf16_to_f32(a[i]) : 0.0f; };
  const auto at_b = [&](int64_t i) { return i < k ? bf16_to_f32(b[i * b_stride]) : 0.0f; };
  float c = start;
  for (int64_t first = 0; first < k; first += 32) {
    float even = 0, odd = 0;
    for (int64_t i = first; i < first + 32; i += 2) {
      even = fma_of_16bit(at_a(i), at_b(i), even);
      odd = fma_of_16bit(at_a(i + 1), at_b(i + 1), odd);
    }
    c = c + (even + odd);
  }
  return c;
}

float dot(DotOrder order, const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride, float start) {
  switch (order) {
    case DotOrder::kSequential:
      return dot_sequential_f16(a, b, k, b_stride, start);
    case DotOrder::kPair:
      return dot_pair(a, b, k, b_stride, start);
    case DotOrder::kTile:
      return dot_tile(a, b, k, b_stride, start);
  }
  return start;
}

}  // namespace spyre
