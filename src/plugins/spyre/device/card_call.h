// One call of a card function, as the stick rules see it, and the check of it: compatibility of sticks, arrangements,
// types and the limits of single functions (rules L-20, L-25 .. L-39). Source: torch-spyre's layout rules (facts of
// stick compatibility, staggered tensors, reductions) and issues; the marks stand in the rule table.
//
// A call has iteration dimensions, numbered from 0. An operand says for each of its own dimensions which of them walks
// it: that is all the rules speak of. Plain values; check_card_call() is a pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugins/spyre/device/layout.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {

struct CardOperand {
  std::string name;
  CardType type = CardType::kDl16;
  Arrangement arrangement = Arrangement::kStandard;
  std::vector<int> walks;     // iteration dimension of each dimension; -1: none (a constant, or it broadcasts)
  int stick = -1;             // which of its dimensions lies in the stick; -1: sparse or scalar
  int64_t stick_offset = 0;   // where in the stick dimension the operand begins, in elements
  int64_t stick_modulus = 0;  // it repeats after so many elements; 0: it does not
  bool index = false;         // of a gather or scatter: exempt from the stick rules

  // The iteration dimension that walks the inside of the stick; -1 when none does.
  int stick_variable() const { return stick < 0 ? -1 : walks[static_cast<size_t>(stick)]; }
};

struct CardCall {
  std::string name;  // of the function
  std::string what;  // of the operator it comes from, for messages: "add %7"
  std::vector<CardOperand> inputs, outputs;
  std::vector<int> reduced;  // iteration dimensions that are reduced; of a matmul K, of a norm part the normalised one
  int cores = 1;
  int64_t k = 0;       // topk: values kept
  int k_walk = -1;     // topk: iteration dimension of the kept values
  int along = -1;      // pad, flip, slice_scatter: the iteration dimension they work on
  int64_t before = 0;  // pad: elements in front
  int64_t step = 1;    // slice_scatter
};

// Told of every check that was passed.
using RuleMet = std::function<void(Rule)>;

// Throws Error(kRuleViolation) naming the rule, the call and the operand.
void check_card_call(const CardCall& call, const RuleMet& met = nullptr);

}  // namespace spyre::device
