#include "plugins/spyre/compiler/assign_extents.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "graph/text.h"
#include "plugins/spyre/compiler/propagate_layouts.h"
#include "plugins/spyre/compiler/verify_extents.h"
#include "plugins/spyre/compiler/verify_rules.h"

namespace spyre::compiler {
namespace {

class Extents {
 public:
  explicit Extents(const std::string& text) : graph_(graph::parse(text)) {
    RuleLog log;
    CardState state(graph_, log);
    verify_rules(state);
    propagate_layouts(state);
    assign_extents(state);
    verify_extents(state);  // agrees with what it finds
    axes_ = state.axes;
  }
  std::string of(const std::string& value, int dim) const { return axes_[*graph_.find(value)][dim].to_string(); }

 private:
  graph::Graph graph_;
  Axes axes_;
};

std::string attention_block(int64_t heads, int64_t kv_heads, int64_t d) {
  const int64_t q = heads * d, kv = kv_heads * d;
  return fmt::format(R"(graph g {{
    input %x : f16[@8,100]
    input %rot : f16[@8,2,2,{}]
    input %slots : i32[@8]
    input %batch : batch
    param %wqkv : f16[100,{}]
    param %bqkv : f16[{}]
    param %wo : f16[{},100]
    state %kv : kv f16[{},{}]
    %qkv0 = matmul(%x, %wqkv)
    %qkv = add(%qkv0, %bqkv)
    %q0 = slice(%qkv) {{axis=1, start=0, size={}}}
    %k0 = slice(%qkv) {{axis=1, start={}, size={}}}
    %v0 = slice(%qkv) {{axis=1, start={}, size={}}}
    %q1 = reshape(%q0) {{shape=[-1,{},{}]}}
    %k1 = reshape(%k0) {{shape=[-1,{},{}]}}
    %v1 = reshape(%v0) {{shape=[-1,{},{}]}}
    %q2 = rotate_2x2(%q1, %rot)
    %k2 = rotate_2x2(%k1, %rot)
    %kv1 = kv_store(%kv, %k2, %v1, %slots)
    %a = attention(%q2, %kv1, %batch) {{scale=0.125}}
    %a1 = reshape(%a) {{shape=[-1,{}]}}
    %o = matmul(%a1, %wo)
    return %o
  }})",
                     d / 2, q + 2 * kv, q + 2 * kv, q, kv_heads, d, q, q, kv, q + kv, kv, heads, d, kv_heads, d,
                     kv_heads, d, q);
}

TEST(AssignExtents, HeadPaddingComesOutOfStructure) {
  const Extents e(attention_block(9, 3, 64));
  EXPECT_EQ(e.of("wqkv", 1), "12x(64->128 halves)+3x(64->128)");
  EXPECT_EQ(e.of("bqkv", 0), "12x(64->128 halves)+3x(64->128)");
  EXPECT_EQ(e.of("q1", 2), "1x(64->128 halves)");
  EXPECT_EQ(e.of("k0", 1), "3x(64->128 halves)");
  EXPECT_EQ(e.of("v1", 2), "1x(64->128)");
  EXPECT_EQ(e.of("a", 2), "1x(64->128)");
  EXPECT_EQ(e.of("wo", 0), "9x(64->128)");
  EXPECT_EQ(e.of("rot", 3), "1x(32->64)");
  EXPECT_EQ(e.of("kv", 1), "1x(64->128 halves)");
  EXPECT_EQ(e.of("wqkv", 0), "1x(100->128)");  // K is filled up, and what is tied to it
  EXPECT_EQ(e.of("x", 1), "1x(100->128)");
  EXPECT_EQ(e.of("x", 0), "8");
}

TEST(AssignExtents, HeadsOfWholeSticksAreNotPadded) {
  const Extents e(attention_block(8, 8, 128));
  EXPECT_EQ(e.of("wqkv", 1), "3072");
  EXPECT_EQ(e.of("kv", 1), "128");
}

TEST(AssignExtents, OddHeadSizesKeepTheHalvesApart) {
  const Extents e(attention_block(4, 1, 80));
  EXPECT_EQ(e.of("wqkv", 1), "5x(80->128 halves)+1x(80->128)");
}

TEST(AssignExtents, HeadsWithoutRotation) {
  const Extents e(R"(graph g {
    input %q : f16[@8,12,64]
    input %k : f16[@8,12,64]
    input %v : f16[@8,12,64]
    input %slots : i32[@8]
    input %batch : batch
    state %kv : kv f16[12,64]
    %kv1 = kv_store(%kv, %k, %v, %slots)
    %a = attention(%q, %kv1, %batch) {scale=0.125}
    return %a
  })");
  EXPECT_EQ(e.of("kv", 1), "64");
  EXPECT_EQ(e.of("a", 2), "64");
}

TEST(AssignExtents, PartsOfAFusedProjectionAreWholeSticks) {
  const Extents e(R"(graph g {
    input %x : f16[@8,64]
    param %w : f16[64,200]
    param %down : f16[100,64]
    %y = matmul(%x, %w)
    %gate = slice(%y) {axis=1, start=0, size=100}
    %up = slice(%y) {axis=1, start=100, size=100}
    %act = silu(%gate)
    %z = mul(%act, %up)
    %o = matmul(%z, %down)
    return %o
  })");
  EXPECT_EQ(e.of("w", 1), "2x(100->128)");
  EXPECT_EQ(e.of("down", 0), "1x(100->128)");
  EXPECT_EQ(e.of("x", 1), "64");
}

TEST(AssignExtents, OverlappingSlicesCutAtEveryBoundary) {
  const Extents e(R"(graph g {
    input %x : f16[@8,100]
    %a = slice(%x) {axis=1, start=0, size=60}
    %b = slice(%x) {axis=1, start=40, size=60}
    %c = add(%a, %b)
    return %c
  })");
  // a and b are tied: each also holds the other's cut.
  EXPECT_EQ(e.of("x", 1), "5x(20->64)");
  EXPECT_EQ(e.of("c", 1), "3x(20->64)");
}

TEST(AssignExtents, ASliceOfAnotherDimensionPadsNothing) {
  const Extents e(R"(graph g {
    input %x : f16[@8,10,100]
    %a = slice(%x) {axis=1, start=3, size=5}
    return %a
  })");
  EXPECT_EQ(e.of("x", 1), "10");
  EXPECT_EQ(e.of("x", 2), "100");
}

}  // namespace
}  // namespace spyre::compiler
