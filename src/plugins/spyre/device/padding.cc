#include "plugins/spyre/device/padding.h"

#include <bit>
#include <limits>

#include "base/dl16.h"
#include "base/error.h"

namespace spyre::device {
namespace {

uint32_t word(CardType type, Fill fill) {
  if (fill == Fill::kZero) return 0;
  const bool lowest = fill == Fill::kLowest;
  const float infinity = std::numeric_limits<float>::infinity();
  switch (type) {
    case CardType::kDl16:
      return f32_to_dl16(lowest ? -infinity : infinity);
    case CardType::kFp32:
      return std::bit_cast<uint32_t>(lowest ? -infinity : infinity);
    case CardType::kInt32:
      return lowest ? 0x80000000u : 0x7fffffffu;
    default:
      SPYRE_CHECK(false, "padding of {}", info(type).name);
  }
  return 0;
}

void set(std::byte* memory, int bits, int64_t element, uint32_t value) {
  if (bits == 32) {
    reinterpret_cast<uint32_t*>(memory)[element] = value;
  } else if (bits == 16) {
    reinterpret_cast<uint16_t*>(memory)[element] = static_cast<uint16_t>(value);
  } else if (bits == 8) {
    memory[element] = std::byte{static_cast<uint8_t>(value)};
  } else {
    memory[element / 2] &= element % 2 == 0 ? std::byte{0xf0} : std::byte{0x0f};  // zero is the only fill of int4
  }
}

}  // namespace

void fill_padding(const Layout& layout, Fill fill, std::byte* memory) {
  if (fill == Fill::kNone) return;
  const std::vector<WalkLoop> loops = walk(layout);
  const uint32_t value = word(layout.type, fill);
  const int bits = bits_of(layout.type);
  std::vector<int64_t> coordinate(layout.host_size.size());
  for (int64_t element = 0; element < layout.device_elements(); ++element) {
    std::fill(coordinate.begin(), coordinate.end(), 0);
    bool padding = false;
    int64_t rest = element;
    for (size_t i = loops.size(); i-- > 0; rest /= loops[i].extent) {
      const int64_t index = rest % loops[i].extent;
      if (loops[i].dim < 0) {
        padding = padding || index != 0;
      } else {
        coordinate[loops[i].dim] += index * loops[i].step;
      }
    }
    for (size_t d = 0; d < coordinate.size() && !padding; ++d) padding = coordinate[d] >= layout.host_size[d];
    if (padding) set(memory, bits, element, value);
  }
}

}  // namespace spyre::device
