#include "plugins/spyre/device/card_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plugins/spyre/device/card_functions.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

template <typename Detail>
void demand(Rule rule, bool kept, Detail&& detail) {
  if (!kept) refuse(rule, detail());
}

// Operands that the stick rules speak of: results too, indices and what no iteration dimension walks not.
std::vector<const CardOperand*> bound(const CardCall& call) {
  std::vector<const CardOperand*> operands;
  for (const std::vector<CardOperand>* list : {&call.inputs, &call.outputs}) {
    for (const CardOperand& operand : *list) {
      const bool constant = std::all_of(operand.walks.begin(), operand.walks.end(), [](int walk) { return walk < 0; });
      if (!operand.index && !constant) operands.push_back(&operand);
    }
  }
  return operands;
}

void check_stick_offsets(const CardCall& call) {
  for (const CardOperand* operand : bound(call)) {
    const bool whole = operand->stick_offset % stick_elements(operand->type) == 0 && operand->stick_modulus == 0;
    demand(Rule::kStickOffset, operand->stick < 0 || whole, [&] {
      return fmt::format("{}: {} begins at element {} of its stick dimension, modulus {}", call.what, operand->name,
                         operand->stick_offset, operand->stick_modulus);
    });
  }
}

// Compatibility: one stick variable at most, and nobody walks it outside of a stick unless it is that operand's own.
void check_sticks(const CardCall& call) {
  std::optional<int> variable;
  const std::vector<const CardOperand*> operands = bound(call);
  for (const CardOperand* operand : operands) {
    const int own = operand->stick_variable();
    if (own < 0) continue;
    demand(Rule::kStickConflict, !variable || *variable == own, [&] {
      return fmt::format("{}: {} is walked by dimension {} inside its stick, another operand by {}", call.what,
                         operand->name, own, *variable);
    });
    variable = own;
  }
  if (!variable) return;
  for (const CardOperand* operand : operands) {
    if (operand->stick_variable() == *variable) continue;
    const bool walked = std::find(operand->walks.begin(), operand->walks.end(), *variable) != operand->walks.end();
    demand(Rule::kStickElsewhere, !walked, [&] {
      return fmt::format("{}: {} has dimension {} outside of its stick, other operands inside", call.what,
                         operand->name, *variable);
    });
  }
}

// A standard operand may meet a staggered one when all its elements along the stick are one.
bool broadcasts_along(const CardOperand& operand, int variable) {
  return operand.arrangement == Arrangement::kStandard &&
         std::find(operand.walks.begin(), operand.walks.end(), variable) == operand.walks.end();
}

bool is_plain(const std::vector<CardOperand>& operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const CardOperand& operand) { return operand.arrangement == Arrangement::kStandard; });
}

void check_exx2(const CardCall& call) {
  if (call.name == "layernormscale") return;
  for (const CardOperand& operand : call.inputs) {
    demand(Rule::kExx2, operand.arrangement != Arrangement::kExx2,
           [&] { return fmt::format("{}: {} is a result of exx2", call.what, operand.name); });
  }
}

void check_staggered(const CardCall& call, FunctionKind kind) {
  if (is_plain(call.inputs)) return;
  const auto first = std::find_if(call.inputs.begin(), call.inputs.end(),
                                  [](const CardOperand& operand) { return is_staggered(operand.arrangement); });
  if (first == call.inputs.end()) return;
  bool legal = kind == FunctionKind::kUnary || kind == FunctionKind::kCast || kind == FunctionKind::kStickReduction;
  if (kind == FunctionKind::kPointwise) {
    legal = std::all_of(call.inputs.begin(), call.inputs.end(), [&](const CardOperand& operand) {
      return operand.arrangement == first->arrangement || broadcasts_along(operand, first->stick_variable());
    });
  }
  demand(Rule::kStaggeredOp, legal, [&] {
    return fmt::format("{}: {} of {}, which is {}", call.what, call.name, first->name, to_string(first->arrangement));
  });
}

void check_reduction(const CardCall& call, bool along_stick) {
  demand(Rule::kReductionStick, call.reduced.size() == 1,
         [&] { return fmt::format("{}: {} reduces {} dimensions", call.what, call.name, call.reduced.size()); });
  if (call.reduced.empty()) return;
  const int own = call.inputs.at(0).stick_variable();
  demand(Rule::kReductionStick, (call.reduced[0] == own) == along_stick, [&] {
    return fmt::format("{}: {} reduces dimension {} of {}, whose stick holds {}", call.what, call.name, call.reduced[0],
                       call.inputs[0].name, own);
  });
}

void check_product(const CardCall& call) {
  const int own = call.inputs.at(0).stick_variable();
  const bool inside = std::find(call.reduced.begin(), call.reduced.end(), own) != call.reduced.end();
  demand(Rule::kProdOnStick, own < 0 || !inside, [&] {
    return fmt::format("{}: prod over dimension {}, the stick of {}", call.what, own, call.inputs[0].name);
  });
  check_reduction(call, false);
}

void check_norm_part(const CardCall& call) {
  for (const CardOperand* operand : bound(call)) {
    if (operand->stick < 0 || operand->arrangement == Arrangement::kExx2) continue;
    demand(Rule::kNormStick, call.reduced.size() == 1 && operand->stick_variable() == call.reduced[0], [&] {
      return fmt::format("{}: {} normalises along {}, the stick of {} holds {}", call.what, call.name,
                         call.reduced.empty() ? -1 : call.reduced[0], operand->name, operand->stick_variable());
    });
  }
}

void check_topk(const CardCall& call) {
  constexpr int64_t kMostValues = 4;
  demand(Rule::kTopk, call.k >= 1 && call.k <= kMostValues,
         [&] { return fmt::format("{}: topk keeps {} values", call.what, call.k); });
  demand(Rule::kTopk, call.cores == 1, [&] { return fmt::format("{}: topk on {} cores", call.what, call.cores); });
  for (const CardOperand* operand : bound(call)) {
    const int own = operand->stick_variable();
    const bool reduced = std::find(call.reduced.begin(), call.reduced.end(), own) != call.reduced.end();
    demand(Rule::kTopk, own < 0 || (!reduced && own != call.k_walk),
           [&] { return fmt::format("{}: topk along dimension {}, the stick of {}", call.what, own, operand->name); });
  }
}

// x[.., M, K] @ y[.., K, N] in sticks of K, N and N.
void check_matmul(const CardCall& call) {
  const CardOperand &x = call.inputs.at(0), &y = call.inputs.at(1), &out = call.outputs.at(0);
  const int k = call.reduced.size() == 1 ? call.reduced[0] : -1;
  demand(Rule::kMatmulSticks, k >= 0 && x.stick_variable() == k, [&] {
    return fmt::format("{}: the stick of {} holds dimension {}, K is {}", call.what, x.name, x.stick_variable(), k);
  });
  const int n = y.stick_variable();
  demand(Rule::kMatmulSticks, n >= 0 && n != k && out.stick_variable() == n, [&] {
    return fmt::format("{}: the stick of {} holds dimension {}, that of {} {}, K is {}", call.what, y.name, n, out.name,
                       out.stick_variable(), k);
  });
  demand(Rule::kMatmulSticks, out.type == CardType::kDl16 && x.type == y.type, [&] {
    return fmt::format("{}: {} times {} into {}", call.what, info(x.type).name, info(y.type).name, info(out.type).name);
  });
}

void check_types(const CardCall& call, const CardFunction& function) {
  for (const CardOperand& operand : call.inputs) {
    demand(Rule::kInt32Ops, function.int32 || operand.index || operand.type != CardType::kInt32,
           [&] { return fmt::format("{}: {} of {}, which is int32", call.what, call.name, operand.name); });
  }
}

void check_pad(const CardCall& call) {
  const CardOperand& from = call.inputs.at(0);
  const bool inside = from.stick_variable() == call.along && call.along >= 0;
  demand(Rule::kPadOnStick, !inside || call.before % stick_elements(from.type) == 0, [&] {
    return fmt::format("{}: {} elements in front of the stick dimension of {}", call.what, call.before, from.name);
  });
}

void check_flip(const CardCall& call) {
  const CardOperand& from = call.inputs.at(0);
  demand(Rule::kFlipOnStick, call.along < 0 || from.stick_variable() != call.along,
         [&] { return fmt::format("{}: a flip of the stick dimension of {}", call.what, from.name); });
}

void check_slice_scatter(const CardCall& call) {
  demand(Rule::kSliceScatterStep, call.step == 1,
         [&] { return fmt::format("{}: slice_scatter with step {}", call.what, call.step); });
}

}  // namespace

void check_card_call(const CardCall& call) {
  const CardFunction* function = find_card_function(call.name);
  demand(Rule::kNoLowering, function != nullptr,
         [&] { return fmt::format("{}: the card has no function {}", call.what, call.name); });
  if (function == nullptr) return;
  check_types(call, *function);
  check_exx2(call);
  check_staggered(call, function->kind);
  check_stick_offsets(call);
  switch (function->kind) {
    case FunctionKind::kUnary:
    case FunctionKind::kPointwise:
    case FunctionKind::kCast:
      return check_sticks(call);
    case FunctionKind::kStickReduction:
      return check_reduction(call, true);
    case FunctionKind::kReduction:
      return check_reduction(call, false);
    case FunctionKind::kProduct:
      return check_product(call);
    case FunctionKind::kNormPart:
      return check_norm_part(call);
    case FunctionKind::kTopk:
      return check_topk(call);
    case FunctionKind::kMatmul:
      return check_matmul(call);
    case FunctionKind::kPad:
      return check_pad(call);
    case FunctionKind::kFlip:
      return check_flip(call);
    case FunctionKind::kSliceScatter:
      return check_slice_scatter(call);
    case FunctionKind::kRestickify:
    case FunctionKind::kMove:
    case FunctionKind::kGather:
      return;
  }
}

}  // namespace spyre::device
