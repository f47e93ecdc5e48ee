// The block types with two and three bits, and those with four bits on a grid. See dequantize.h for their layouts.
#include "base/half.h"
#include "formats/bytes.h"
#include "formats/dequantize.h"

namespace spyre::formats {
namespace {

inline float load_f16(const std::byte* address) {
  return f16_to_f32(load_le<uint16_t>(address));
}
// |count| bits of |b| from bit |first| on.
inline int bits(std::byte b, int first, int count) {
  return (static_cast<int>(b) >> first) & ((1 << count) - 1);
}

// The two bits of element |i| of 256: halves of 128 elements in rows of 32, and a byte holds one element of each row.
inline int two_bits(const std::byte* packed, int i) {
  return bits(packed[i / 128 * 32 + i % 32], i % 128 / 32 * 2, 2);
}

// Scale of group |j| of 16 in Q3_K: lower four bits in eight bytes, upper two in four.
inline int six_bit_scale(const std::byte* packed, int j) {
  return (bits(packed[j % 8], j / 8 * 4, 4) | (bits(packed[8 + j % 4], j / 4 * 2, 2) << 4)) - 32;
}

// What the 16 codes of IQ4_NL and IQ4_XS stand for: closer to each other around 0, where most weights are.
constexpr int8_t kGrid[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void dequantize_grid_group(float scale, const std::byte* nibbles, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(kGrid[bits(nibbles[i % 16], i / 16 * 4, 4)]);
}

}  // namespace

void dequantize_q2_k(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 84, out += 256) {
    const float d = load_f16(source + 80), m = load_f16(source + 82);
    for (int i = 0; i < 256; ++i) {
      const std::byte group = source[i / 16];
      const float scale = d * static_cast<float>(bits(group, 0, 4)), min = m * static_cast<float>(bits(group, 4, 4));
      out[i] = scale * static_cast<float>(two_bits(source + 16, i)) - min;
    }
  }
}

void dequantize_q3_k(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 110, out += 256) {
    const float d = load_f16(source + 108);
    for (int i = 0; i < 256; ++i) {
      const int third = bits(source[i % 32], i / 32, 1);
      const float scale = d * static_cast<float>(six_bit_scale(source + 96, i / 16));
      out[i] = scale * static_cast<float>((two_bits(source + 32, i) | (third << 2)) - 4);
    }
  }
}

void dequantize_iq4_nl(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 32; ++block, source += 18, out += 32)
    dequantize_grid_group(load_f16(source), source + 2, out);
}

void dequantize_iq4_xs(const std::byte* source, size_t n, float* out) {
  for (size_t block = 0; block < n / 256; ++block, source += 136, out += 256) {
    const float d = load_f16(source);
    const int upper = load_le<uint16_t>(source + 2);
    for (int j = 0; j < 8; ++j) {
      const int scale = (bits(source[4 + j / 2], j % 2 * 4, 4) | (((upper >> (2 * j)) & 3) << 4)) - 32;
      dequantize_grid_group(d * static_cast<float>(scale), source + 8 + 16 * j, out + 32 * j);
    }
  }
}

}  // namespace spyre::formats
