// What others published of the card's times, beside what the cost model gives for the same work: how far the model can
// be trusted. An anchor is missed when the model is off by more than twice the fit's own RMS error. Where two sources
// publish times of the same work that no model can meet both, the one that the model does not follow is contradicted.
#pragma once

#include <string_view>
#include <vector>

namespace spyre::device {

struct Anchor {
  std::string_view name;
  std::string_view source;      // tag as in docs/cost.md
  std::string_view confidence;  // of the published figure
  bool seen = false;  // measured by someone, or fitted to it with a form of its own; otherwise a constant of the fit,
                      // which the model has to give back
  double published_ns = 0, model_ns = 0;
  double rms = 0;  // the fit's own error for this kind of work, as a share
  std::string_view note;
  std::string_view contradicted_by = {};  // the name of an anchor of the same work
  double ratio() const { return model_ns / published_ns; }
  bool met() const;
};

// No time is within twice the error of both: whatever a model says, it misses one of them.
bool irreconcilable(const Anchor& a, const Anchor& b);

// Under the "measured" configuration. A claim that is a ratio of two times has the ratio in place of the times.
std::vector<Anchor> anchors();

}  // namespace spyre::device
