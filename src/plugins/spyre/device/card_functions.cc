#include "plugins/spyre/device/card_functions.h"

#include <algorithm>
#include <array>

namespace spyre::device {
namespace {

using enum FunctionKind;

constexpr std::array kFunctions = {
    CardFunction{"abs", kUnary},
    CardFunction{"neg", kUnary},
    CardFunction{"exp", kUnary},
    CardFunction{"fastexp", kUnary},
    CardFunction{"log", kUnary},
    CardFunction{"sqrt", kUnary},
    CardFunction{"rsqrt", kUnary},
    CardFunction{"reciprocal", kUnary},
    CardFunction{"relu", kUnary},
    CardFunction{"relu6", kUnary},
    CardFunction{"leakyrelu", kUnary},
    CardFunction{"sigmoid", kUnary},
    CardFunction{"fastsigmoid", kUnary},
    CardFunction{"tanh", kUnary},
    CardFunction{"gelu", kUnary},
    CardFunction{"silu", kUnary},
    CardFunction{"mish", kUnary},
    CardFunction{"softplus", kUnary},
    CardFunction{"clip", kUnary},
    CardFunction{"floor", kUnary},
    CardFunction{"add", kPointwise, Fill::kNone, true},
    CardFunction{"mul", kPointwise, Fill::kNone, true},
    CardFunction{"sub", kPointwise},
    CardFunction{"revsub", kPointwise},
    CardFunction{"realdiv", kPointwise},
    CardFunction{"maximum", kPointwise},
    CardFunction{"minimum", kPointwise},
    CardFunction{"equal", kPointwise},
    CardFunction{"greater", kPointwise},
    CardFunction{"less", kPointwise},
    CardFunction{"where3", kPointwise},
    CardFunction{"fnms", kPointwise},
    CardFunction{"biasadd", kPointwise},
    CardFunction{"maskbyindex", kPointwise},
    CardFunction{"sum", kStickReduction, Fill::kZero},
    CardFunction{"mean", kStickReduction, Fill::kZero},
    CardFunction{"absmax", kStickReduction, Fill::kZero},
    CardFunction{"max", kStickReduction, Fill::kLowest},
    CardFunction{"min", kStickReduction, Fill::kHighest},
    CardFunction{"sumnonstick", kReduction, Fill::kZero},
    CardFunction{"meannonstick", kReduction, Fill::kZero},
    CardFunction{"absmaxnonstick", kReduction, Fill::kZero},
    CardFunction{"maxnonstick", kReduction, Fill::kLowest},
    CardFunction{"minnonstick", kReduction, Fill::kHighest},
    CardFunction{"prod", kProduct},
    CardFunction{"exx2", kNormPart, Fill::kZero},
    CardFunction{"layernormscale", kNormPart},
    CardFunction{"layernormnorm", kNormPart},
    CardFunction{"topk", kTopk},
    CardFunction{"batchmatmul", kMatmul, Fill::kZero},
    CardFunction{"cast", kCast, Fill::kNone, true},
    CardFunction{"restickify", kRestickify},
    CardFunction{"identity", kMove, Fill::kNone, true},
    CardFunction{"concat", kMove, Fill::kNone, true},
    CardFunction{"gather", kGather, Fill::kNone, true},
    CardFunction{"constant_pad", kPad, Fill::kNone, true},
    CardFunction{"flip", kFlip, Fill::kNone, true},
    CardFunction{"slice_scatter", kSliceScatter, Fill::kNone, true},
};

}  // namespace

std::span<const CardFunction> all_card_functions() {
  return kFunctions;
}

const CardFunction* find_card_function(std::string_view name) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                  [&](const CardFunction& function) { return function.name == name; });
  return found == kFunctions.end() ? nullptr : &*found;
}

}  // namespace spyre::device
