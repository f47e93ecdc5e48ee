#include "plugins/spyre/device/cost_page.h"

#include <fmt/format.h>

#include "plugins/spyre/device/anchors.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::device {
namespace {

constexpr std::string_view kIntroduction = R"(# What things cost on the card

Written from `src/plugins/spyre/device/cost_figures.cc` and `anchors.cc` by the test `CostPage.IsUpToDate`; after a change, run it
with `SPYRE_REGENERATE=1` in the environment.

The software device estimates the card's time from public figures. Nothing here was measured by this project. There are two
configurations, reported side by side and never averaged: **measured** is a fitted model of the software stack of mid 2026, **spec**
the peaks. The mark beside a figure says how sure it is: H stated by the card's owner or by several sources, M one good source or
fitted by the owner, L second hand, INF worked out here, UNK not public: a guess that stands in one place.

## The model

- Of a *bundle*, operations that hand their results on inside the card, T = max(compute, memory) + relayout. Bundles add up.
- Memory: bytes, padding included, at the one-way rate, and a term for the smaller of read and written. What stays in the
  scratchpad is free; an operand that many cores need is read once.
- Products: multiply-adds over cores at the sustained rate, less below 64 rows a core; a batch of matrices in default order and a
  projection of a batch have rates of their own; a K divided over cores uses one corelet of two.
- Restickify: read at its rate, then written at it or in requests of the runs that lie together, whichever takes longer.
- Reductions along the stick alone in their bundle read at a rate that falls with their rows and with fewer cores.
- A kernel that walks coarse tiles is slower by tiles that do not fill the cores and by a working set that overflows the
  scratchpad, and reads operands again when its tile is too large.
- Where bundles are cut is not public: here two operations share one only if the first leaves its result inside the card (INF).

)";

std::string figures_table() {
  std::string text =
      "## Figures\n\n| figure | unit | measured | spec | where the measured one comes from |\n|---|---|---|---|---|\n";
  const auto measured = figures_of(measured_costs()), spec = figures_of(spec_costs());
  for (size_t i = 0; i < measured.size(); ++i) {
    const Figure &m = *measured[i].figure, &s = *spec[i].figure;
    text += fmt::format("| {} | {} | {} ({}) | {} ({}) | {} |\n", measured[i].name, m.unit, m.value, m.confidence,
                        s.value, s.confidence, m.provenance);
  }
  return text;
}

std::string verdict(const Anchor& a) {
  if (a.met()) return "";
  return a.contradicted_by.empty() ? "**missed**" : fmt::format("*contradicted* by \"{}\"", a.contradicted_by);
}

std::string anchors_table() {
  std::string text = R"(
## Anchors

What others published, and what "measured" gives for the same work, as a ratio of times (above 1: the model is slower). *Constant*
is a constant of the fit, which the model has to give back; *seen* was measured by someone, or is another form's fit to it. A miss is
a ratio off by more than twice the fit's own RMS error; *contradicted*: off, where another source says of the same work what no
model can meet together with this one. TS is torch-spyre, AH a public fork of it, SI the original plugin.

| work | source | kind | ratio | RMS error | |
|---|---|---|---|---|---|
)";
  std::string notes;
  for (const Anchor& a : anchors()) {
    text += fmt::format("| {} | {} ({}) | {} | {:.2f} | {:.1f}% | {} |\n", a.name, a.source, a.confidence,
                        a.seen ? "seen" : "constant", a.ratio(), 100 * a.rms, verdict(a));
    if (!a.note.empty()) notes += fmt::format("- {}: {}.\n", a.name, a.note);
  }
  return text + "\n" + notes +
         "\nPublished times of an addition (0.258 ms) and of a product (0.708 ms) come without shapes and are no "
         "anchors.\n";
}

}  // namespace

std::string cost_page() {
  return std::string(kIntroduction) + figures_table() + anchors_table();
}

}  // namespace spyre::device
