#include "formats/dequantize.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/cpu.h"
#include "base/error.h"
#include "base/half.h"
#include "formats/bytes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spyre::formats {
namespace {

constexpr GgmlTypeInfo kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
};

using Kernel = void (*)(const std::byte*, size_t, float*);

Kernel kernel_of(uint32_t type) {
  switch (static_cast<GgmlType>(type)) {
    case GgmlType::kF32:
      return widen_f32;
    case GgmlType::kF16:
      return widen_f16;
    case GgmlType::kBF16:
      return widen_bf16;
    case GgmlType::kQ8_0:
      return dequantize_q8_0;
    case GgmlType::kQ4_0:
      return dequantize_q4_0;
    case GgmlType::kQ4_1:
      return dequantize_q4_1;
    case GgmlType::kQ5_0:
      return dequantize_q5_0;
    case GgmlType::kQ5_1:
      return dequantize_q5_1;
    case GgmlType::kQ2_K:
      return dequantize_q2_k;
    case GgmlType::kQ3_K:
      return dequantize_q3_k;
    case GgmlType::kQ4_K:
      return dequantize_q4_k;
    case GgmlType::kQ5_K:
      return dequantize_q5_k;
    case GgmlType::kQ6_K:
      return dequantize_q6_k;
    case GgmlType::kIQ4_NL:
      return dequantize_iq4_nl;
    case GgmlType::kIQ4_XS:
      return dequantize_iq4_xs;
  }
  return nullptr;
}

inline float load_f16(const std::byte* address) {
  return f16_to_f32(load_le<uint16_t>(address));
}
inline void store_16(std::byte* out, uint16_t value) {
  std::memcpy(out, &value, 2);
}

void narrow_f16(const float* source, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; ++i) store_16(out + 2 * i, f32_to_f16(source[i]));
}

#if defined(__x86_64__)
// The conversion instructions give the bits of base/half.h, NaNs included, and 5 to 8 times its speed: widening and
// narrowing are most of a model's load time.
__attribute__((target("avx,f16c"))) void narrow_f16_f16c(const float* source, size_t n, std::byte* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  narrow_f16(source + i, n - i, out + 2 * i);
}
__attribute__((target("avx,f16c"))) void widen_f16_f16c(const std::byte* source, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + 2 * i))));
  for (; i < n; ++i) out[i] = load_f16(source + 2 * i);
}
bool has_avx2() {
  static const bool has = CpuFeatures::capped_by_environment().avx2;
  return has;
}

// The commonest blocks, 8 elements at a time: q is exact in fp32, the product and the sum are those of the scalar
// forms.
__attribute__((target("avx2"))) inline void store_8(__m256i q, __m256 d, __m256 m, float* out) {
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(d, _mm256_cvtepi32_ps(q)), m));
}

// 32 nibbles less `zero`, of blocks of `bytes` with their 16 bytes of nibbles at the end: q4_0 (no m) and q4_1.
template <bool kHasMin>
__attribute__((target("avx2"))) void dequantize_q4_avx2(const std::byte* source, size_t n, float* out) {
  constexpr size_t kHead = kHasMin ? 4 : 2;
  const __m128i low = _mm_set1_epi8(15);
  const __m256i zero = _mm256_set1_epi32(kHasMin ? 0 : 8);
  for (size_t block = 0; block < n / 32; ++block, source += kHead + 16, out += 32) {
    const __m256 d = _mm256_set1_ps(load_f16(source));
    const __m256 m = _mm256_set1_ps(kHasMin ? load_f16(source + 2) : -0.0f);  // x + -0 is x, whatever x
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + kHead));
    const __m128i nibbles[2] = {_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)};
    for (int half = 0; half < 2; ++half) {
      const __m256i first = _mm256_cvtepu8_epi32(nibbles[half]);
      const __m256i second = _mm256_cvtepu8_epi32(_mm_srli_si128(nibbles[half], 8));
      store_8(_mm256_sub_epi32(first, zero), d, m, out + 16 * half);
      store_8(_mm256_sub_epi32(second, zero), d, m, out + 16 * half + 8);
    }
  }
}

__attribute__((target("avx2"))) void dequantize_q8_0_avx2(const std::byte* source, size_t n, float* out) {
  const __m256 none = _mm256_set1_ps(-0.0f);
  for (size_t block = 0; block < n / 32; ++block, source += 34, out += 32) {
    const __m256 d = _mm256_set1_ps(load_f16(source));
    for (int i = 0; i < 32; i += 8) {
      const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source + 2 + i));
      store_8(_mm256_cvtepi8_epi32(q), d, none, out + i);
    }
  }
}
#endif

// Branch-free, so that it vectorises: the three cases of f32_to_bf16 as selects.
void narrow_bf16(const float* source, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t x = std::bit_cast<uint32_t>(source[i]);
    const uint32_t magnitude = x & 0x7fffffffu;
    uint32_t y = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
    y = magnitude < 0x00800000u ? (x >> 16) & 0x8000u : y;
    y = magnitude > 0x7f800000u ? (x >> 16) | 0x40u : y;
    store_16(out + 2 * i, static_cast<uint16_t>(y));
  }
}

}  // namespace

const GgmlTypeInfo* find_ggml_type(uint32_t number) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgmlTypeInfo& t) { return t.number == number; });
  return found == std::end(kTypes) ? nullptr : found;
}

bool can_dequantize(uint32_t number) {
  return kernel_of(number) != nullptr;
}

std::string dequantizable_types() {
  std::string names;
  for (const GgmlTypeInfo& type : kTypes)
    if (can_dequantize(type.number)) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

void dequantize_q8_0(const std::byte* source, size_t n, float* out) {
#if defined(__x86_64__)
  if (has_avx2()) return dequantize_q8_0_avx2(source, n, out);
#endif
  for (size_t block = 0; block < n / 32; ++block, source += 34, out += 32) {
    const float d = load_f16(source);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(source[2 + i]));
  }
}

void dequantize_q4_0(const std::byte* source, size_t n, float* out) {
#if defined(__x86_64__)
  if (has_avx2()) return dequantize_q4_avx2<false>(source, n, out);
#endif
  for (size_t block = 0; block < n / 32; ++block, source += 18, out += 32) {
    const float d = load_f16(source);
    for (int i = 0; i < 16; ++i) {
      const int q = static_cast<int>(source[2 + i]);
      out[i] = d * static_cast<float>((q & 15) - 8);
      out[i + 16] = d * static_cast<float>((q >> 4) - 8);
    }
  }
}

void dequantize_q4_1(const std::byte* source, size_t n, float* out) {
#if defined(__x86_64__)
  if (has_avx2()) return dequantize_q4_avx2<true>(source, n, out);
#endif
  for (size_t block = 0; block < n / 32; ++block, source += 20, out += 32) {
    const float d = load_f16(source), m = load_f16(source + 2);
    for (int i = 0; i < 16; ++i) {
      const int q = static_cast<int>(source[4 + i]);
      out[i] = d * static_cast<float>(q & 15) + m;
      out[i + 16] = d * static_cast<float>(q >> 4) + m;
    }
  }
}

void widen_f32(const std::byte* source, size_t n, float* out) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(out, source, n * 4);
  } else {
    for (size_t i = 0; i < n; ++i) out[i] = load_le<float>(source + 4 * i);
  }
}

void widen_f16(const std::byte* source, size_t n, float* out) {
#if defined(__x86_64__)
  if (has_avx2()) return widen_f16_f16c(source, n, out);
#endif
  for (size_t i = 0; i < n; ++i) out[i] = load_f16(source + 2 * i);
}

void widen_bf16(const std::byte* source, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load_le<uint16_t>(source + 2 * i));
}

void dequantize(uint32_t type, const std::byte* source, size_t n, float* out) {
  const Kernel kernel = kernel_of(type);
  SPYRE_CHECK(kernel != nullptr, "type {}", type);
  const GgmlTypeInfo& info = *find_ggml_type(type);
  if (n % info.block != 0)
    throw_error(ErrorCode::kInvalidArgument, "{} elements are no multiple of the {} of a {} block", n, info.block,
                info.name);
  kernel(source, n, out);
}

void narrow(const float* source, size_t n, DType target, std::byte* out) {
  switch (target) {
    case DType::kF32:
      std::memcpy(out, source, n * 4);
      return;
    case DType::kBF16:
      return narrow_bf16(source, n, out);
    case DType::kF16:
#if defined(__x86_64__)
      if (has_avx2()) return narrow_f16_f16c(source, n, out);
#endif
      return narrow_f16(source, n, out);
    default:
      throw_error(ErrorCode::kInvalidArgument, "weights are read as f32, f16 or bf16, not {}", to_string(target));
  }
}

}  // namespace spyre::formats
