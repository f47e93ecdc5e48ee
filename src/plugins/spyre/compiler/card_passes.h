// The phases of the card side, in order, and their driver. Each phase has a name, a timer, and after it (on request) a
// verifier of what there is of the card plan by then and a dump of it.
//
// Order: rules of operators alone, layouts and restickify choice, extents, their check, lowering, restickify insertion,
// indirect access, copy elision, division of work (spans, matmuls, the rest), calls, pool, accounts.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

struct CardPass {
  std::string_view name;             // verb-object: "insert-restickify"
  int64_t (*run)(CardState& state);  // how much it did, of |unit|
  std::string_view unit;             // "restickifies", for reports
};
std::span<const CardPass> card_passes();

struct CardPassOptions {
  bool verify = false;     // after every phase, not only after the last one
  std::string dump_after;  // a phase, or "all"
  std::function<void(std::string_view pass, const std::string& text)> dump;
};

// Runs them all over |state|; one record per phase. Throws Error(kRuleViolation) where a rule is broken;
// Error(kInternal) naming the phase after which the plan does not verify.
std::vector<device::CardPassRecord> run_card_passes(CardState& state, const CardPassOptions& options = {});

}  // namespace spyre::compiler
