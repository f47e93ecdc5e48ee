// What others published of the card's times, beside what the cost model gives for the same work: how far the model can
// be trusted. An anchor is missed when the model is off by more than twice the fit's own RMS error.
#pragma once

#include <string_view>
#include <vector>

namespace spyre::device {

struct Anchor {
  std::string_view name;
  std::string_view source;      // tag as in docs/cost.md
  std::string_view confidence;  // of the published figure
  bool seen = false;  // measured by someone; otherwise a constant of the fit, which the model has to give back
  double published_ns = 0, model_ns = 0;
  double rms = 0;  // the fit's own error for this kind of work, as a share
  std::string_view note;
  double ratio() const { return model_ns / published_ns; }
  bool met() const;
};

// Under the "measured" configuration. A claim that is a ratio of two times has the ratio in place of the times.
std::vector<Anchor> anchors();

}  // namespace spyre::device
