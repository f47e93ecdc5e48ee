// An axis: one dimension of a tensor with its two extents. The *logical* extent is the model's; the *card* extent is
// what the card's static, stick-aligned shapes need: head size 64 becomes 128, an MLP width or a vocabulary is filled
// up to whole sticks. Padding may lie inside: per head, or between the parts of a fused projection.
//
// An axis is a list of segments; a segment is |count| units of |unit| logical elements, each padded to |card_unit|.
// With |halves| a unit is padded behind each half ([first half | 0 | second half | 0]), which keeps the two halves of a
// rotary head on whole sticks; otherwise at its end. Immutable value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spyre::device {

struct AxisSegment {
  int64_t count = 1;
  int64_t unit = 1;
  int64_t card_unit = 1;
  bool halves = false;
  bool operator==(const AxisSegment&) const = default;
};

class Axis {
 public:
  Axis() = default;
  // No padding.
  explicit Axis(int64_t extent) : Axis(std::vector<AxisSegment>{{1, extent, extent, false}}) {}
  explicit Axis(std::vector<AxisSegment> segments);

  int64_t logical() const { return logical_; }
  int64_t card() const { return card_; }
  bool padded() const { return logical_ != card_; }
  const std::vector<AxisSegment>& segments() const { return segments_; }

  // Card coordinate of logical index i. O(number of segments).
  int64_t to_card(int64_t i) const;
  // The whole map, [logical()]: for loops.
  std::vector<int64_t> card_indices() const;
  std::string to_string() const;  // "576", "9x(64->128 halves)+3x(64->128)"

  bool operator==(const Axis& other) const { return segments_ == other.segments_; }

 private:
  std::vector<AxisSegment> segments_{{1, 1, 1, false}};
  int64_t logical_ = 1, card_ = 1;
};

}  // namespace spyre::device
