#include "plugins/spyre/device/axis.h"

#include "base/error.h"

namespace spyre::device {

Axis::Axis(std::vector<AxisSegment> segments) : logical_(0), card_(0) {
  for (AxisSegment& s : segments) {
    SPYRE_CHECK(s.count > 0 && s.unit > 0 && s.card_unit >= s.unit, "segment {} x {} -> {}", s.count, s.unit,
                s.card_unit);
    SPYRE_CHECK(!s.halves || (s.unit % 2 == 0 && s.card_unit % 2 == 0), "halves of {} -> {}", s.unit, s.card_unit);
    logical_ += s.count * s.unit;
    card_ += s.count * s.card_unit;
    // Normal form: units without padding are one unit, neighbours that pad alike are one segment.
    if (s.unit == s.card_unit) s = {1, s.count * s.unit, s.count * s.unit, false};
    AxisSegment* last = segments_.empty() ? nullptr : &segments_.back();
    if (&s == &segments.front()) {
      segments_ = {s};
    } else if (last->unit == last->card_unit && s.unit == s.card_unit) {
      last->unit += s.unit;
      last->card_unit = last->unit;
    } else if (last->unit == s.unit && last->card_unit == s.card_unit && last->halves == s.halves) {
      last->count += s.count;
    } else {
      segments_.push_back(s);
    }
  }
}

int64_t Axis::to_card(int64_t i) const {
  SPYRE_CHECK(i >= 0 && i < logical_, "{} of {}", i, logical_);
  int64_t base = 0;
  for (const AxisSegment& s : segments_) {
    if (i < s.count * s.unit) {
      const int64_t unit = i / s.unit, inside = i % s.unit;
      const int64_t shift = s.halves && inside >= s.unit / 2 ? s.card_unit / 2 - s.unit / 2 : 0;
      return base + unit * s.card_unit + inside + shift;
    }
    i -= s.count * s.unit;
    base += s.count * s.card_unit;
  }
  return base;
}

std::vector<int64_t> Axis::card_indices() const {
  std::vector<int64_t> indices(logical_);
  for (int64_t i = 0; i < logical_; ++i) indices[i] = to_card(i);
  return indices;
}

std::string Axis::to_string() const {
  if (!padded()) return fmt::format("{}", logical_);
  std::string text;
  for (const AxisSegment& s : segments_) {
    if (!text.empty()) text += "+";
    if (s.unit == s.card_unit) {
      text += fmt::format("{}", s.unit);
    } else {
      text += fmt::format("{}x({}->{}{})", s.count, s.unit, s.card_unit, s.halves ? " halves" : "");
    }
  }
  return text;
}

}  // namespace spyre::device
