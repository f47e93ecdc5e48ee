// Element arrangements: in which order the elements along the stick dimension lie where it is not the plain one.
// Source: torch-spyre's layouts; the rules of staggered tensors are young and moving (M).
//
// A cast between DL16 and fp32 works on eight groups of eight elements at a time and leaves its result *staggered*: the
// elements of 64 columns are permuted among two fp32 sticks, or inside of one DL16 stick. The other cast undoes it.
// Column c of the stick dimension lies where column arranged(c) of the plain arrangement would:
//   kDl16ToFp32   c = 64 p + 8 g + 4 s + e   ->  64 p + 32 s + 4 g + e     (fp32 stick 2 p + s, place 4 g + e)
//   kFp32ToDl16   c = 64 q + 32 h + 4 g + e  ->  64 q + 8 g + 4 h + e      (DL16 stick q, place 8 g + 4 h + e)
// with g 0..7, s and h 0..1, e 0..3. kExx2 is the result of exx2: two values at the head of each stick, the rest unset.
#pragma once

#include <cstdint>
#include <string_view>

namespace spyre::device {

enum class Arrangement : uint8_t { kStandard, kDl16ToFp32, kFp32ToDl16, kExx2 };

std::string_view to_string(Arrangement arrangement);

inline bool is_staggered(Arrangement a) {
  return a == Arrangement::kDl16ToFp32 || a == Arrangement::kFp32ToDl16;
}

// Columns that are permuted among themselves.
inline constexpr int64_t kStaggerColumns = 64;

inline int64_t arranged(Arrangement arrangement, int64_t c) {
  if (!is_staggered(arrangement)) return c;
  const int64_t block = c / kStaggerColumns * kStaggerColumns, inside = c % kStaggerColumns, e = inside % 4;
  if (arrangement == Arrangement::kDl16ToFp32) return block + inside / 4 % 2 * 32 + inside / 8 * 4 + e;
  return block + inside / 4 % 8 * 8 + inside / 32 * 4 + e;
}

}  // namespace spyre::device
