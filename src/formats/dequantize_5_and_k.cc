// The block types with five bits, and those with groups inside a block. See dequantize.h for their layouts.
#include "base/half.h"
#include "formats/bytes.h"
#include "formats/dequantize.h"

namespace spyre::formats {
namespace {

inline float load_f16(const std::byte* address) {
  return f16_to_f32(load_le<uint16_t>(address));
}
inline int nibble(std::byte b, int which) {
  return (static_cast<int>(b) >> (4 * which)) & 15;
}
// Bit |i| of |bits|, as the fifth bit of a number.
inline int fifth(uint32_t bits, int i) {
  return static_cast<int>((bits >> i) & 1) << 4;
}

// Scale and minimum of group |j| of 8. The first four have their six bits in a byte each; of the others, the lower four
// bits share a byte, and the upper two stand above those of the first four.
struct ScaleAndMin {
  int scale, min;
};
inline ScaleAndMin scale_and_min(const std::byte* packed, int j) {
  const auto at = [&](int i) { return static_cast<int>(packed[i]); };
  if (j < 4) return {at(j) & 63, at(j + 4) & 63};
  return {(at(j + 4) & 15) | ((at(j - 4) >> 6) << 4), (at(j + 4) >> 4) | ((at(j) >> 6) << 4)};
}

// Q4_K and Q5_K: |high| is null, or has bit j of byte i as the fifth bit of element i of group j.
void dequantize_group_block(const std::byte* source, const std::byte* high, const std::byte* nibbles, float* out) {
  const float d = load_f16(source), m = load_f16(source + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMin group = scale_and_min(source + 4, j);
    const float scale = d * static_cast<float>(group.scale), min = m * static_cast<float>(group.min);
    const std::byte* pair = nibbles + j / 2 * 32;  // two groups share 32 bytes: low and high nibbles
    for (int i = 0; i < 32; ++i) {
      const int top = high ? fifth(static_cast<uint32_t>(high[i]), j) : 0;
      out[j * 32 + i] = scale * static_cast<float>(nibble(pair[i], j % 2) | top) - min;
    }
  }
}

}  // namespace

void dequantize_q5_0(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 32; ++block, source += 22, out += 32) {
    const float d = load_f16(source);
    const auto high = load_le<uint32_t>(source + 2);
    for (int i = 0; i < 32; ++i) {
      out[i] = d * static_cast<float>((nibble(source[6 + i % 16], i / 16) | fifth(high, i)) - 16);
    }
  }
}

void dequantize_q5_1(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 32; ++block, source += 24, out += 32) {
    const float d = load_f16(source), m = load_f16(source + 2);
    const auto high = load_le<uint32_t>(source + 4);
    for (int i = 0; i < 32; ++i) {
      out[i] = d * static_cast<float>(nibble(source[8 + i % 16], i / 16) | fifth(high, i)) + m;
    }
  }
}

void dequantize_q4_k(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 144, out += 256)
    dequantize_group_block(source, nullptr, source + 16, out);
}

void dequantize_q5_k(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 176, out += 256)
    dequantize_group_block(source, source + 16, source + 48, out);
}

void dequantize_q6_k(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 210, out += 256) {
    const float d = load_f16(source + 208);
    for (int i = 0; i < 256; ++i) {
      // Halves of 128 elements in rows of 32: rows 0 and 1 have low nibbles, 2 and 3 the high ones of the same bytes.
      const int half = i / 128, row = i % 128 / 32, lane = i % 32;
      const int low = nibble(source[64 * half + 32 * (row % 2) + lane], row / 2);
      const int high = (static_cast<int>(source[128 + 32 * half + lane]) >> (2 * row)) & 3;
      const float scale = d * static_cast<float>(static_cast<int8_t>(source[192 + i / 16]));
      out[i] = scale * static_cast<float>((low | (high << 4)) - 32);
    }
  }
}

}  // namespace spyre::formats
