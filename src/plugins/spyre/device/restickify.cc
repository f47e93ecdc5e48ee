#include "plugins/spyre/device/restickify.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace spyre::device {
namespace {

// One tile: |a| elements along the stick of the source, |b| along the stick of the target.
template <typename Word>
void transpose_tile(const Word* source, int64_t source_step, Word* target, int64_t target_step, int64_t a, int64_t b) {
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) target[i * target_step + j] = source[j * source_step + i];
  }
}

template <typename Word>
class Transposer {
 public:
  Transposer(const Placement& from, const Placement& to, std::span<const int64_t> extents, const std::byte* source,
             std::byte* target)
      : from_(from),
        to_(to),
        extents_(extents),
        source_(reinterpret_cast<const Word*>(source)),
        target_(reinterpret_cast<Word*>(target)) {}

  // The dimensions beside the two sticks, from |dim| on.
  void outer(int dim, int64_t source, int64_t target) {
    if (dim == from_.rank()) return tiles(source, target);
    if (dim == from_.stick_dim || dim == to_.stick_dim) return outer(dim + 1, source, target);
    for (int64_t c = 0; c < extents_[dim]; ++c) {
      outer(dim + 1, source + from_.step(dim, c), target + to_.step(dim, c));
    }
  }

 private:
  void tiles(int64_t source, int64_t target) {
    const int a = from_.stick_dim, b = to_.stick_dim;
    const int64_t e = from_.stick_elements;
    for (int64_t i = 0; i < extents_[a]; i += e) {
      for (int64_t j = 0; j < extents_[b]; j += e) {
        transpose_tile(source_ + source + from_.step(a, i) + from_.step(b, j), from_.strides[b],
                       target_ + target + to_.step(a, i) + to_.step(b, j), to_.strides[a], std::min(e, extents_[a] - i),
                       std::min(e, extents_[b] - j));
      }
    }
  }

  const Placement& from_;
  const Placement& to_;
  std::span<const int64_t> extents_;
  const Word* source_;
  Word* target_;
};

}  // namespace

void transpose_tiles(const Placement& from, const Placement& to, std::span<const int64_t> extents,
                     const std::byte* source, std::byte* target, int64_t element_bytes) {
  SPYRE_CHECK(from.stick_dim >= 0 && to.stick_dim >= 0 && from.stick_dim != to.stick_dim, "sticks {} and {}",
              from.stick_dim, to.stick_dim);
  SPYRE_CHECK(from.rank() == to.rank() && from.rank() == static_cast<int>(extents.size()), "ranks {}, {}, {}",
              from.rank(), to.rank(), extents.size());
  SPYRE_CHECK(from.arrangement == Arrangement::kStandard && to.arrangement == Arrangement::kStandard);
  if (element_bytes == 4) {
    Transposer<uint32_t>(from, to, extents, source, target).outer(0, from.offset, to.offset);
  } else {
    SPYRE_CHECK(element_bytes == 2, "elements of {} bytes", element_bytes);
    Transposer<uint16_t>(from, to, extents, source, target).outer(0, from.offset, to.offset);
  }
}

}  // namespace spyre::device
