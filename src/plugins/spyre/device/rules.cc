#include "plugins/spyre/device/rules.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace spyre::device {
namespace {

constexpr std::array kRules = {
    RuleInfo{Rule::kDType, "L-01", "dtype", "a tensor of a dtype other than f16, bf16, f32 or i32",
             "the card has DL16, fp32 inside a fused graph, and int32 (int64 is narrowed on the way)", "H",
             "Convert on the host before the transfer."},
    RuleInfo{Rule::kRank, "L-02", "rank", "a tensor of more than 6 dimensions",
             "layouts of rank above 6 were not compiled until very recently", "H", "Merge dimensions."},
    RuleInfo{Rule::kEmptyTensor, "L-03", "empty-tensor", "a tensor with a zero extent",
             "zero-length tensors crash the card's runtime", "M", "Leave the operator out."},
    RuleInfo{Rule::kMatmulDType, "L-04", "matmul-dtype", "a matmul of operands that are not 16-bit",
             "there is no fp32 matmul on the card", "H", "Convert the operands to f16 or bf16."},
    RuleInfo{
        Rule::kFp32Ops, "L-05", "fp32-ops", "an operator on fp32 that is not in the card's fp32 list",
        "only add sub mul div maximum minimum abs neg exp sigmoid silu relu sqrt rsqrt reciprocal sum mean, casts and "
        "norm parts work in fp32",
        "H", "Convert to a 16-bit dtype before it."},
    RuleInfo{Rule::kRestickifyFp32, "L-06", "restickify-fp32", "a change of the stick dimension of an fp32 tensor",
             "ReStickifyOpHBM is unsupported for IEEE_FP32", "H", "Change the layout before converting to fp32."},
    RuleInfo{Rule::kRestickifySparse, "L-07", "restickify-sparse", "a change of layout from a sparse stick",
             "a reduction along the stick leaves one element per stick, which cannot be spread again", "H",
             "Keep the reduced dimension (keepdims) and broadcast it, or reduce a dimension outside of the stick."},
    RuleInfo{Rule::kGatherIndex, "L-08", "gather-index",
             "a gather or scatter index that is not a graph input or parameter",
             "indirect access reads int32 indices from HBM; a view at an offset was read from its base", "M",
             "Give the index as an i32 graph input of its own."},
    RuleInfo{Rule::kGatherOnStick, "L-09", "gather-on-stick", "a gather along the dimension that lies in the stick",
             "an integer index on the stick dimension does not lower (torch-spyre #2017)", "H",
             "Lay the table out with the gathered dimension outside of the stick."},
    RuleInfo{Rule::kSliceOffStick, "L-10", "slice-off-stick",
             "a slice of the stick dimension whose start is inside a stick",
             "views at an unaligned stick offset do not lower (torch-spyre #3916)", "H",
             "Pad the parts to whole sticks, as the fused projections do, or slice another dimension."},
    RuleInfo{Rule::kConcatOffStick, "L-11", "concat-off-stick",
             "a concatenation along the stick dimension at a place inside a stick",
             "cat at an unaligned stick offset does not lower (torch-spyre #3916)", "H",
             "Pad the parts to whole sticks or concatenate along another dimension."},
    RuleInfo{Rule::kRotaryHalf, "L-12", "rotary-half", "a rotation whose half head cannot be padded to whole sticks",
             "the 2x2 rotation needs head_dim / 2 to be a multiple of 64", "H",
             "Use full neox rotary on heads that the head padding can widen to a multiple of 128."},
    RuleInfo{Rule::kHeadSize, "L-13", "head-size", "attention whose card head size is no multiple of 64",
             "a page row must be whole sticks", "H", "Let the head padding widen it."},
    RuleInfo{Rule::kBlockSize, "L-14", "block-size", "a KV block size that is no multiple of 64",
             "a page must be whole sticks of keys for Q K^T", "H", "Use 64, 128, 256, ..."},
    RuleInfo{Rule::kSpan, "L-15", "core-span", "an operand of which one core would touch more than 256 MiB",
             "a core addresses at most 256 MiB of one tensor in one operation", "H",
             "Split a dimension over more cores, or the tensor into several."},
    RuleInfo{Rule::kReshapeAcrossStick, "L-16", "reshape-across-stick",
             "a reshape that moves the boundary of the stick dimension",
             "a view cannot regroup elements across sticks; only splits and merges that keep whole sticks are views",
             "M", "Split at a multiple of 64, or keep the last dimension."},
    RuleInfo{Rule::kMixedStick, "L-17", "mixed-stick",
             "an elementwise operator whose operands hold different dimensions in the stick and cannot be re-laid",
             "all operands and the result of a pointwise operator share one stick dimension", "H",
             "Bring the operands to one layout before."},
    RuleInfo{Rule::kExtentConflict, "L-18", "extent-conflict",
             "a dimension that two operators need padded in different ways",
             "all tensors of an operator must agree on each padded span", "H",
             "Use an extent that is a multiple of the stick, which needs no padding."},
    RuleInfo{Rule::kMatmulDims, "L-19", "matmul-dims", "a matmul with more than two batch dimensions",
             "batchmatmul takes at most 2 batch and 2 row dimensions", "M", "Merge batch dimensions."},
    RuleInfo{Rule::kNoLowering, "L-20", "no-lowering", "an operator that no device operator implements",
             "not in the card's operator list", "H", "Compute it on the host, or write it with operators that lower."},
    RuleInfo{Rule::kDeviceMemory, "L-22", "device-memory", "allocations beyond the card's memory",
             "128 GB of LPDDR5 less ECC leaves about 112 GB", "H",
             "Use a smaller model, fewer KV blocks, or more cards."},
    RuleInfo{Rule::kCardType, "L-23", "card-type", "a tensor of a dtype that has no type on the card",
             "the card has DL16, fp32, int32, int8, two fp8 and int4; float64 and complex do not exist there", "H",
             "Convert to float32 or to a 16-bit dtype on the host."},
    RuleInfo{
        Rule::kIntNarrowing, "L-24", "int-narrowing", "a copy of an int64 that does not fit into 32 bits",
        "int64 is narrowed to IEEE_INT32 on the way to the card; what is cut off would be lost (the card's software "
        "warns)",
        "H", "Keep indices and ids below 2^31."},
    RuleInfo{Rule::kStickConflict, "L-25", "stick-conflict",
             "a pointwise operator whose operands are walked along different dimensions inside their sticks",
             "operands are compatible only if all sticks that are no constants belong to one variable", "H",
             "Restickify the operands to one stick dimension."},
    RuleInfo{Rule::kStickElsewhere, "L-26", "stick-elsewhere",
             "a pointwise operand that has the stick dimension of the others outside of its stick",
             "a dimension that lies in the stick of one operand may not be a plain dimension of another", "H",
             "Restickify that operand."},
    RuleInfo{Rule::kStickOffset, "L-27", "stick-offset",
             "an operand whose stick begins at an offset or repeats by a modulus",
             "a stick of the form v mod E + c is never compatible (torch-spyre #3916)", "H",
             "Slice at multiples of the stick, or copy the operand first."},
    RuleInfo{Rule::kStaggeredCast, "L-28", "staggered-cast",
             "a cast between DL16 and fp32 of a tensor whose stick dimension is no multiple of 64, or that is sparse",
             "the cast works on whole sticks and makes an even number of fp32 sticks", "M",
             "Pad the dimension to whole sticks, or cast before the reduction."},
    RuleInfo{
        Rule::kStaggeredOp, "L-29", "staggered-op",
        "an operator that does not keep the order of staggered elements, or whose operands have different ones",
        "legal are unary functions, binary ones of equal arrangement or with a standard operand that broadcasts along "
        "the stick, reductions of the whole stick, and the inverse cast",
        "M", "Cast back first."},
    RuleInfo{Rule::kExx2, "L-30", "exx2-arrangement",
             "a result of exx2 as the operand of anything but the norm's scale",
             "its two values per stick mix with no other arrangement", "M", "Give it to layernormscale alone."},
    RuleInfo{
        Rule::kReductionStick, "L-31", "reduction-stick",
        "a reduction over the stick by the nonstick form, over another dimension by the stick form, or over several "
        "dimensions at once",
        "the stick form reduces the whole stick, the nonstick form a dimension outside of it; dimensions go one at a "
        "time",
        "H", "Use the form that fits, one reduction per dimension."},
    RuleInfo{Rule::kProdOnStick, "L-32", "prod-on-stick", "a product over the dimension that lies in the stick",
             "prod exists in the nonstick form only", "H", "Bring another dimension into the stick first."},
    RuleInfo{Rule::kTopk, "L-33", "topk",
             "a topk with k above 4, on several cores, or with the reduced dimension or k in the stick",
             "topk keeps up to 4 values, on one core, outside of the stick", "H",
             "Bring another dimension into the stick, or choose on the host."},
    RuleInfo{Rule::kPadOnStick, "L-34", "pad-on-stick",
             "padding in front of the stick dimension that is no multiple of the stick",
             "a pad at an unaligned stick offset does not lower (torch-spyre #3916)", "H",
             "Pad behind, pad by whole sticks, or pad another dimension."},
    RuleInfo{Rule::kFlipOnStick, "L-35", "flip-on-stick", "a flip of the dimension that lies in the stick",
             "sticks are read forward only", "H", "Bring another dimension into the stick first."},
    RuleInfo{Rule::kSliceScatterStep, "L-36", "slice-scatter-step", "a slice_scatter with a step above 1",
             "strided slice_scatter does not lower", "H", "Scatter runs, or write every element by index."},
    RuleInfo{Rule::kMatmulSticks, "L-37", "matmul-sticks",
             "a matmul whose operands or result do not have the sticks of its type's table",
             "x holds K in its stick, y and the result N; weights of 8 and 4 bits have packed sticks and a DL16 result",
             "M", "Restickify the operand, or pack the weight at load."},
    RuleInfo{Rule::kInt32Ops, "L-38", "int32-ops", "an int32 operand of a function other than add, mul and copies",
             "int32 is native for add and mul only; comparisons are unsupported (torch-spyre #1630)", "H",
             "Compute it on the host."},
    RuleInfo{Rule::kNormStick, "L-39", "norm-stick", "a part of a norm whose normalised dimension is not the stick",
             "exx2, layernormscale and layernormnorm work along the stick", "H", "Restickify the operand."},
    RuleInfo{Rule::kMatmulOneColumn, "L-40", "matmul-one-column", "a matmul that generates a single column",
             "a matmul with an output dimension of size 1 does not lower (seen by the card's users)", "M",
             "Pad the weight to more columns and slice the result, or multiply and sum."},
    RuleInfo{Rule::kPoolSegment, "L-41", "pool-segment", "a program whose intermediate values take more than 14 GiB",
             "one of eight memory segments of 16 GiB holds them, and the card's software uses 14 GiB of it", "H",
             "Use a smaller token bucket, or cut the program in two."},
    RuleInfo{Rule::kTensorSegment, "L-42", "tensor-segment", "a tensor of more than 16 GiB",
             "a tensor lies in one of the eight memory segments", "H", "Divide it into several tensors."},
    RuleInfo{Rule::kExactSplit, "L-43", "exact-split", "a division of work into parts that are not equal",
             "a split divides its dimension exactly, the stick dimension counted in sticks", "H",
             "Split by a divisor, or pad the dimension."},
    RuleInfo{Rule::kCores, "L-44", "cores", "a division of work over more than 32 cores", "32 cores are active", "H",
             "Split less."},
    RuleInfo{Rule::kPartialSums, "L-45", "partial-sums",
             "a divided reduction whose parts do not fall to neighbouring cores",
             "partial sums are added along two one-way rings from core to core", "H",
             "Let the reduced dimension change fastest."},
    RuleInfo{Rule::kAlignment, "L-46", "alignment", "a tensor or view that does not begin at a multiple of 128 bytes",
             "memory and scratchpad are addressed in sticks", "H", "Place it at the next stick."},
    RuleInfo{Rule::kOperandStick, "L-47", "operand-stick",
             "an operation whose operands do not lie as it needs them for the layout of its result",
             "every operator takes certain stick dimensions only; nothing is re-laid while it runs", "H",
             "Restickify the operand before."},
};

}  // namespace

std::span<const RuleInfo> all_rules() {
  return kRules;
}

const RuleInfo& info(Rule rule) {
  return *std::find_if(kRules.begin(), kRules.end(), [rule](const RuleInfo& r) { return r.rule == rule; });
}

void refuse(Rule rule, const std::string& detail) {
#ifdef SPYRE_DROPPED_RULE
  if (rule == Rule::SPYRE_DROPPED_RULE) return;
#endif
  const RuleInfo& r = info(rule);
  throw_error(ErrorCode::kRuleViolation, "{} {}: {}. {}", r.number, r.title, detail, r.remedy);
}

}  // namespace spyre::device
