#include "plugins/spyre/device/card_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plugins/spyre/device/card_functions.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

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

// A standard operand may meet a staggered one when all its elements along the stick are one.
bool broadcasts_along(const CardOperand& operand, int variable) {
  return operand.arrangement == Arrangement::kStandard &&
         std::find(operand.walks.begin(), operand.walks.end(), variable) == operand.walks.end();
}

bool is_plain(const std::vector<CardOperand>& operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const CardOperand& operand) { return operand.arrangement == Arrangement::kStandard; });
}

class CallCheck {
 public:
  CallCheck(const CardCall& call, const RuleMet& met) : call_(call), met_(met) {}

  void run() const {
    const CardFunction* function = find_card_function(call_.name);
    demand(Rule::kNoLowering, function != nullptr,
           [&] { return fmt::format("{}: the card has no function {}", call_.what, call_.name); });
    if (function == nullptr) return;
    check_types(*function);
    check_exx2();
    check_staggered(function->kind);
    check_stick_offsets();
    switch (function->kind) {
      case FunctionKind::kUnary:
      case FunctionKind::kPointwise:
      case FunctionKind::kCast:
        return check_sticks();
      case FunctionKind::kStickReduction:
        return check_reduction(true);
      case FunctionKind::kReduction:
        return check_reduction(false);
      case FunctionKind::kProduct:
        return check_product();
      case FunctionKind::kNormPart:
        return check_norm_part();
      case FunctionKind::kTopk:
        return check_topk();
      case FunctionKind::kMatmul:
        return check_matmul();
      case FunctionKind::kPad:
        return check_pad();
      case FunctionKind::kFlip:
        return check_flip();
      case FunctionKind::kSliceScatter:
        return check_slice_scatter();
      case FunctionKind::kRestickify:
      case FunctionKind::kMove:
      case FunctionKind::kGather:
        return;
    }
  }

 private:
  template <typename Detail>
  void demand(Rule rule, bool kept, Detail&& detail) const {
    if (!kept) refuse(rule, detail());
    if (met_) met_(rule);
  }

  void check_stick_offsets() const {
    for (const CardOperand* operand : bound(call_)) {
      const bool whole = operand->stick_offset % stick_elements(operand->type) == 0 && operand->stick_modulus == 0;
      demand(Rule::kStickOffset, operand->stick < 0 || whole, [&] {
        return fmt::format("{}: {} begins at element {} of its stick dimension, modulus {}", call_.what, operand->name,
                           operand->stick_offset, operand->stick_modulus);
      });
    }
  }

  // Compatibility: one stick variable at most, and nobody walks it outside of a stick unless it is that operand's own.
  void check_sticks() const {
    std::optional<int> variable;
    const std::vector<const CardOperand*> operands = bound(call_);
    for (const CardOperand* operand : operands) {
      const int own = operand->stick_variable();
      if (own < 0) continue;
      demand(Rule::kStickConflict, !variable || *variable == own, [&] {
        return fmt::format("{}: {} is walked by dimension {} inside its stick, another operand by {}", call_.what,
                           operand->name, own, *variable);
      });
      variable = own;
    }
    if (!variable) return;
    for (const CardOperand* operand : operands) {
      if (operand->stick_variable() == *variable) continue;
      const bool walked = std::find(operand->walks.begin(), operand->walks.end(), *variable) != operand->walks.end();
      demand(Rule::kStickElsewhere, !walked, [&] {
        return fmt::format("{}: {} has dimension {} outside of its stick, other operands inside", call_.what,
                           operand->name, *variable);
      });
    }
  }

  void check_exx2() const {
    if (call_.name == "layernormscale") return;
    for (const CardOperand& operand : call_.inputs) {
      demand(Rule::kExx2, operand.arrangement != Arrangement::kExx2,
             [&] { return fmt::format("{}: {} is a result of exx2", call_.what, operand.name); });
    }
  }

  void check_staggered(FunctionKind kind) const {
    if (is_plain(call_.inputs)) return;
    const auto first = std::find_if(call_.inputs.begin(), call_.inputs.end(),
                                    [](const CardOperand& operand) { return is_staggered(operand.arrangement); });
    if (first == call_.inputs.end()) return;
    bool legal = kind == FunctionKind::kUnary || kind == FunctionKind::kCast || kind == FunctionKind::kStickReduction;
    if (kind == FunctionKind::kPointwise) {
      legal = std::all_of(call_.inputs.begin(), call_.inputs.end(), [&](const CardOperand& operand) {
        return operand.arrangement == first->arrangement || broadcasts_along(operand, first->stick_variable());
      });
    }
    demand(Rule::kStaggeredOp, legal, [&] {
      return fmt::format("{}: {} of {}, which is {}", call_.what, call_.name, first->name,
                         to_string(first->arrangement));
    });
  }

  void check_reduction(bool along_stick) const {
    demand(Rule::kReductionStick, call_.reduced.size() == 1,
           [&] { return fmt::format("{}: {} reduces {} dimensions", call_.what, call_.name, call_.reduced.size()); });
    if (call_.reduced.empty()) return;
    const int own = call_.inputs.at(0).stick_variable();
    demand(Rule::kReductionStick, (call_.reduced[0] == own) == along_stick, [&] {
      return fmt::format("{}: {} reduces dimension {} of {}, whose stick holds {}", call_.what, call_.name,
                         call_.reduced[0], call_.inputs[0].name, own);
    });
  }

  void check_product() const {
    const int own = call_.inputs.at(0).stick_variable();
    const bool inside = std::find(call_.reduced.begin(), call_.reduced.end(), own) != call_.reduced.end();
    demand(Rule::kProdOnStick, own < 0 || !inside, [&] {
      return fmt::format("{}: prod over dimension {}, the stick of {}", call_.what, own, call_.inputs[0].name);
    });
    check_reduction(false);
  }

  void check_norm_part() const {
    for (const CardOperand* operand : bound(call_)) {
      if (operand->stick < 0 || operand->arrangement == Arrangement::kExx2) continue;
      demand(Rule::kNormStick, call_.reduced.size() == 1 && operand->stick_variable() == call_.reduced[0], [&] {
        return fmt::format("{}: {} normalises along {}, the stick of {} holds {}", call_.what, call_.name,
                           call_.reduced.empty() ? -1 : call_.reduced[0], operand->name, operand->stick_variable());
      });
    }
  }

  void check_topk() const {
    constexpr int64_t kMostValues = 4;
    demand(Rule::kTopk, call_.k >= 1 && call_.k <= kMostValues,
           [&] { return fmt::format("{}: topk keeps {} values", call_.what, call_.k); });
    demand(Rule::kTopk, call_.cores == 1, [&] { return fmt::format("{}: topk on {} cores", call_.what, call_.cores); });
    for (const CardOperand* operand : bound(call_)) {
      const int own = operand->stick_variable();
      const bool reduced = std::find(call_.reduced.begin(), call_.reduced.end(), own) != call_.reduced.end();
      demand(Rule::kTopk, own < 0 || (!reduced && own != call_.k_walk), [&] {
        return fmt::format("{}: topk along dimension {}, the stick of {}", call_.what, own, operand->name);
      });
    }
  }

  // x[.., M, K] @ y[.., K, N] in sticks of K, N and N.
  void check_matmul() const {
    const CardOperand &x = call_.inputs.at(0), &y = call_.inputs.at(1), &out = call_.outputs.at(0);
    const int k = call_.reduced.size() == 1 ? call_.reduced[0] : -1;
    demand(Rule::kMatmulSticks, k >= 0 && x.stick_variable() == k, [&] {
      return fmt::format("{}: the stick of {} holds dimension {}, K is {}", call_.what, x.name, x.stick_variable(), k);
    });
    const int n = y.stick_variable();
    demand(Rule::kMatmulSticks, n >= 0 && n != k && out.stick_variable() == n, [&] {
      return fmt::format("{}: the stick of {} holds dimension {}, that of {} {}, K is {}", call_.what, y.name, n,
                         out.name, out.stick_variable(), k);
    });
    demand(Rule::kMatmulSticks, out.type == CardType::kDl16 && x.type == y.type, [&] {
      return fmt::format("{}: {} times {} into {}", call_.what, info(x.type).name, info(y.type).name,
                         info(out.type).name);
    });
  }

  void check_types(const CardFunction& function) const {
    for (const CardOperand& operand : call_.inputs) {
      demand(Rule::kInt32Ops, function.int32 || operand.index || operand.type != CardType::kInt32,
             [&] { return fmt::format("{}: {} of {}, which is int32", call_.what, call_.name, operand.name); });
    }
  }

  void check_pad() const {
    const CardOperand& from = call_.inputs.at(0);
    const bool inside = from.stick_variable() == call_.along && call_.along >= 0;
    demand(Rule::kPadOnStick, !inside || call_.before % stick_elements(from.type) == 0, [&] {
      return fmt::format("{}: {} elements in front of the stick dimension of {}", call_.what, call_.before, from.name);
    });
  }

  void check_flip() const {
    const CardOperand& from = call_.inputs.at(0);
    demand(Rule::kFlipOnStick, call_.along < 0 || from.stick_variable() != call_.along,
           [&] { return fmt::format("{}: a flip of the stick dimension of {}", call_.what, from.name); });
  }

  void check_slice_scatter() const {
    demand(Rule::kSliceScatterStep, call_.step == 1,
           [&] { return fmt::format("{}: slice_scatter with step {}", call_.what, call_.step); });
  }

  const CardCall& call_;
  const RuleMet& met_;
};

}  // namespace

void check_card_call(const CardCall& call, const RuleMet& met) {
  CallCheck(call, met).run();
}

}  // namespace spyre::device
