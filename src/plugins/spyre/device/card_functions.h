// The functions that the card has, by name, and what kind each is: how it treats sticks, padding and types. Source: the
// operator lists of torch-spyre and of the interface specifications (H). A table; card_call.h checks calls against it.
#pragma once

#include <span>
#include <string_view>

#include "plugins/spyre/device/padding.h"

namespace spyre::device {

enum class FunctionKind : uint8_t {
  kUnary,           // one operand, element by element
  kPointwise,       // several: they share one stick dimension
  kStickReduction,  // over the whole stick
  kReduction,       // over a dimension outside of the stick
  kProduct,         // prod: as kReduction only
  kNormPart,        // exx2, layernormscale, layernormnorm: along the stick
  kTopk,
  kMatmul,
  kCast,
  kRestickify,
  kMove,    // copies: what they make may lie anywhere
  kGather,  // by an index operand
  kPad,
  kFlip,
  kSliceScatter,
};

struct CardFunction {
  std::string_view name;
  FunctionKind kind;
  Fill fill = Fill::kNone;  // what padding of its operands is masked with
  bool int32 = false;       // takes int32
};

std::span<const CardFunction> all_card_functions();
// Null for a name that the card does not have.
const CardFunction* find_card_function(std::string_view name);

}  // namespace spyre::device
