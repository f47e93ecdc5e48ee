// The card's lowering rules, as data. A program that breaks one is refused by number; nothing is repaired in silence.
//
// Each rule says what is refused, why (source, and how sure we are: H stated by the owner or by several sources, M one
// good source, L second hand, INF worked out), and what to do instead. docs/rules.md is printed from this table; each
// rule has a positive and a negative test that carries its number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace spyre::device {

enum class Rule : uint8_t {
  kDType,               // L-01
  kRank,                // L-02
  kEmptyTensor,         // L-03
  kMatmulDType,         // L-04
  kFp32Ops,             // L-05
  kRestickifyFp32,      // L-06
  kRestickifySparse,    // L-07
  kGatherIndex,         // L-08
  kGatherOnStick,       // L-09
  kSliceOffStick,       // L-10
  kConcatOffStick,      // L-11
  kRotaryHalf,          // L-12
  kHeadSize,            // L-13
  kBlockSize,           // L-14
  kSpan,                // L-15
  kReshapeAcrossStick,  // L-16
  kMixedStick,          // L-17
  kExtentConflict,      // L-18
  kMatmulDims,          // L-19
  kNoLowering,          // L-20
  kDeviceMemory,        // L-22
  // Layouts, transfers and calls of the card's functions (layout.h, host_conversion.h, card_call.h).
  kCardType,          // L-23
  kIntNarrowing,      // L-24
  kStickConflict,     // L-25
  kStickElsewhere,    // L-26
  kStickOffset,       // L-27
  kStaggeredCast,     // L-28
  kStaggeredOp,       // L-29
  kExx2,              // L-30
  kReductionStick,    // L-31
  kProdOnStick,       // L-32
  kTopk,              // L-33
  kPadOnStick,        // L-34
  kFlipOnStick,       // L-35
  kSliceScatterStep,  // L-36
  kMatmulSticks,      // L-37
  kInt32Ops,          // L-38
  kNormStick,         // L-39
  // Programs and card plans (compiler/).
  kMatmulOneColumn,  // L-40
  kPoolSegment,      // L-41
  kTensorSegment,    // L-42
  kExactSplit,       // L-43
  kCores,            // L-44
  kPartialSums,      // L-45
  kAlignment,        // L-46
  kOperandStick,     // L-47
};

struct RuleInfo {
  Rule rule;
  std::string_view number;      // "L-04"
  std::string_view title;       // kebab-case
  std::string_view refused;     // what is refused
  std::string_view reason;      // why, with source
  std::string_view confidence;  // H, M, L, INF
  std::string_view remedy;      // what to do instead
};

// A number that is missing belonged to a rule that nothing here can break (L-21: a reduction has one axis).
std::span<const RuleInfo> all_rules();
const RuleInfo& info(Rule rule);

// docs/rules.md, printed from the table.
std::string rules_page();

// Throws Error(kRuleViolation): "L-10 slice-off-stick: <detail>. <remedy>". The one place where programs are refused.
// Returns only in a build that drops |rule| (SPYRE_DROPPED_RULE, tools/rules.py), which shows that a test would see it:
// what follows a call must not rely on it.
void refuse(Rule rule, const std::string& detail);

}  // namespace spyre::device
