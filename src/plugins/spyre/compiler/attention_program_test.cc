// What the layouts of a KV cache mean on the card: the original's claims, seen in plans.
#include "plugins/spyre/compiler/attention_program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "plugins/spyre/compiler/plan_lx_testing.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {
namespace {

using attention::KvLayout;
using attention::Variant;
using device::LxReason;

// A layer of a model of 8 billion parameters.
constexpr int64_t kHeads = 32, kKvHeads = 8, kGroup = 4, kHeadSize = 128, kBlock = 128;
constexpr int64_t kPage = kBlock * kKvHeads * kHeadSize * 2;  // bytes of K, or of V

AttentionShape layer(KvLayout layout) {
  return {.heads = kHeads, .kv_heads = kKvHeads, .head_size = kHeadSize, .block_size = kBlock, .layout = layout};
}
AttentionProgram head_major(const Variant& variant, AttentionOptions options = {}) {
  return attention_program(layer(KvLayout::kHeadMajor), variant, options);
}
AttentionProgram token_major(const Variant& variant, AttentionOptions options = {}) {
  return attention_program(layer(KvLayout::kTokenMajor), variant, options);
}
const AttentionOptions kLocalReads{.max_cores = {}, .lx = {.restickify_reads = true}};

int64_t count(const AttentionProgram& program, std::string_view op) {
  return std::count_if(program.plan.ops.begin(), program.plan.ops.end(),
                       [&](const device::DeviceOp& o) { return o.name == op; });
}
LxReason verdict(const AttentionProgram& program, std::string_view buffer) {
  const auto found = std::find(program.names.begin(), program.names.end(), buffer);
  return found == program.names.end() ? LxReason::kNotPlanned
                                      : program.plan.buffers[found - program.names.begin()].lx.reason;
}

// A page stays in the scratchpad from its gather to its last use: V as it is, K only where a restickify may read there.
TEST(AttentionProgram, HeadMajorDecodeKeepsItsPagesInTheScratchpad) {
  constexpr int64_t kBlocks = 8;
  const AttentionProgram shipped = head_major({.query = 1, .blocks = kBlocks});
  EXPECT_EQ(shipped.cores, 8);
  EXPECT_EQ(shipped.pages.gathers, 2 * kBlocks);
  EXPECT_EQ(shipped.pages.resident_values, kBlocks);
  EXPECT_EQ(shipped.pages.resident_keys, 0);
  EXPECT_EQ(verdict(shipped, "K 3"), LxReason::kRestickifyInput);
  EXPECT_EQ(verdict(shipped, "V 3"), LxReason::kResident);
  const AttentionProgram proved = head_major({.query = 1, .blocks = kBlocks}, kLocalReads);
  EXPECT_EQ(proved.pages.resident_values, kBlocks);
  EXPECT_EQ(proved.pages.resident_keys, kBlocks);
  EXPECT_EQ(proved.pages.copies, 0);
  EXPECT_LT(proved.plan.pool_bytes, kPage);  // no page round-trips through device memory
  EXPECT_GE(shipped.plan.pool_bytes, kPage);
  EXPECT_LT(program_ns(proved, device::measured_costs()), program_ns(shipped, device::measured_costs()));
}

// Per page, token-major (P bytes of K or V, G groups): K is gathered (read, written), permuted (read, written),
// restickified (read, written), cloned to the groups (read, G written) and read by its product (G); V is gathered,
// permuted (read; the permuted page stays inside), cloned (G written) and read (G). Head-major: K is gathered and read
// by its restickify, V comes out of the cache and stays.
TEST(AttentionProgram, PageReadsOfTheTwoLayouts) {
  for (const int64_t blocks : {1, 4, 16}) {
    const AttentionProgram token = token_major({.query = 1, .blocks = blocks});
    const AttentionProgram head = head_major({.query = 1, .blocks = blocks});
    EXPECT_EQ(token.pages.device_bytes, blocks * kPage * (7 + 2 * kGroup + 3 + 2 * kGroup));
    EXPECT_EQ(head.pages.device_bytes, blocks * kPage * (3 + 1));
    // The permutes and clones go; the restickify of K stays.
    EXPECT_EQ(token.pages.copies, 4 * blocks);
    EXPECT_EQ(head.pages.copies, 0);
    EXPECT_EQ(token.pages.restickifies, blocks);
    EXPECT_EQ(head.pages.restickifies, blocks);
    EXPECT_EQ(token.pages.resident_keys + token.pages.resident_values, 0);
    for (const device::CostConfig* config : {&device::measured_costs(), &device::spec_costs()}) {
      EXPECT_GT(program_ns(token, *config), 3 * program_ns(head, *config)) << config->name;
    }
  }
}

// Products of a decode could use 32 cores only by splits that the gather of a page does not have.
TEST(AttentionProgram, TheCoreCapIsWhatKeepsPagesInside) {
  const Variant decode{.query = 1, .blocks = 4};
  const AttentionProgram capped = head_major(decode, kLocalReads);
  AttentionOptions uncapped_options = kLocalReads;
  uncapped_options.max_cores = 32;
  const AttentionProgram uncapped = head_major(decode, uncapped_options);
  EXPECT_EQ(capped.pages.resident_keys + capped.pages.resident_values, 8);
  EXPECT_EQ(uncapped.pages.resident_keys + uncapped.pages.resident_values, 0);
  EXPECT_EQ(verdict(uncapped, "V 1"), LxReason::kViewsDiffer);
  EXPECT_EQ(uncapped.pages.device_bytes, 4 * capped.pages.device_bytes);  // nothing but the caches, or two round trips
  EXPECT_GT(program_ns(uncapped, device::measured_costs()), 2 * program_ns(capped, device::measured_costs()));
  EXPECT_GT(program_ns(uncapped, device::spec_costs()), 2 * program_ns(capped, device::spec_costs()));
}

// Two KV heads cannot fill eight cores either: what the override is for.
TEST(AttentionProgram, FewKvHeadsWantFewerCores) {
  AttentionShape shape = layer(KvLayout::kHeadMajor);
  shape.kv_heads = 2;
  const Variant decode{.query = 1, .blocks = 4};
  EXPECT_EQ(attention_program(shape, decode, kLocalReads).pages.resident_values, 0);
  AttentionOptions two = kLocalReads;
  two.max_cores = 2;
  const AttentionProgram program = attention_program(shape, decode, two);
  EXPECT_EQ(program.pages.resident_values, 4);
  EXPECT_EQ(program.pages.resident_keys, 4);
}

TEST(AttentionProgram, WhenTheCapApplies) {
  const AttentionShape head = layer(KvLayout::kHeadMajor), token = layer(KvLayout::kTokenMajor);
  EXPECT_EQ(attention_cores(head, {.query = 1}), 8);
  EXPECT_EQ(attention_cores(head, {.query = 3}), 8);
  EXPECT_EQ(attention_cores(head, {.query = 4}), 32);  // 8 x 4 fills the card
  EXPECT_EQ(attention_cores(token, {.query = 1}), 32);
  EXPECT_EQ(attention_cores(head, {.query = 1}, 16), 16);
  EXPECT_EQ(attention_cores(token, {.query = 512}, 4), 4);
  for (const int64_t cores : {1, 4, 8, 16, 32}) {
    for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
      const AttentionProgram program =
          attention_program(layer(layout), {.query = 64, .blocks = 2}, {.max_cores = cores, .lx = {}});
      for (const device::DeviceOp& op : program.plan.ops) {
        EXPECT_LE(device::core_count(op.splits), cores) << op.name;
        for (size_t d = 0; d < op.splits.size(); ++d) EXPECT_EQ(op.extents[d] % op.splits[d], 0) << op.name;
      }
    }
  }
}

// Every product of a query row and a key, and of a probability and a value, once: whatever the program's form.
TEST(AttentionProgram, MultipliesWhatAttentionMultiplies) {
  const Variant variants[] = {{.query = 1, .blocks = 16}, {.query = 64, .blocks = 3}, {.query = 512, .blocks = 1}};
  for (const Variant& v : variants) {
    for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
      for (const int64_t kv_heads : {1, 3, 9}) {  // MQA, GQA, MHA
        const AttentionShape shape{
            .heads = 9, .kv_heads = kv_heads, .head_size = 128, .block_size = 64, .layout = layout};
        const AttentionProgram program = attention_program(shape, v);
        int64_t macs = 0;
        for (const device::OpWork& work : program.works) macs += work.macs;
        EXPECT_EQ(macs, 2 * v.query * 9 * v.blocks * 64 * 128);
        // Only groups of several heads need the page once per group.
        EXPECT_EQ(count(program, "broadcast"), layout == KvLayout::kTokenMajor && kv_heads < 9 ? 2 * v.blocks : 0);
        EXPECT_EQ(program.rules_met["L-19"], 2 * v.blocks);
        EXPECT_EQ(program.rules_met["L-37"], 3 * 2 * v.blocks) << "sticks of x, of y and the result, types";
        EXPECT_EQ(program.rules_met["L-31"], 2 * 2 * v.blocks) << "maximum and sum: one dimension, the stick's";
      }
    }
  }
  // Of a grid: lanes and their padded blocks; up to 32 pages in one gather.
  const AttentionProgram grid = token_major({.query = 1, .blocks = 16, .sequences = 4});
  int64_t macs = 0;
  for (const device::OpWork& work : grid.works) macs += work.macs;
  EXPECT_EQ(macs, 2 * 4 * kHeads * 16 * kBlock * kHeadSize);
  EXPECT_EQ(grid.pages.gathers, 2 * 2);
  EXPECT_EQ(count(grid, "broadcast"), 0);
  EXPECT_EQ(token_major({.query = 1, .blocks = 16, .sequences = 32}).pages.gathers, 2 * 16);
}

TEST(AttentionProgram, ASoftCapIsThreeOperationsAPage) {
  AttentionShape capped = layer(KvLayout::kHeadMajor);
  capped.soft_cap = true;
  const Variant decode{.query = 1, .blocks = 5};
  EXPECT_EQ(attention_program(capped, decode).plan.ops.size(), head_major(decode).plan.ops.size() + 15);
}

TEST(AttentionProgram, ScratchpadsAreSound) {
  for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
    for (const bool reads : {false, true}) {
      for (const int64_t query : {1, 40, 128}) {
        for (const int64_t capacity : {int64_t{16384}, device::kLxPlannedBytes}) {
          const AttentionShape shape{.heads = 6, .kv_heads = 3, .head_size = 128, .block_size = 64, .layout = layout};
          const AttentionProgram program =
              attention_program(shape, {.query = query, .blocks = 3},
                                {.max_cores = {}, .lx = {.capacity = capacity, .restickify_reads = reads}});
          testing::expect_sound(program.plan, capacity);
          ASSERT_FALSE(::testing::Test::HasFatalFailure()) << to_string(layout) << ", " << query << " rows";
          EXPECT_LE(program.plan.lx.peak_bytes, capacity);
        }
      }
    }
  }
  testing::expect_sound(token_major({.query = 1, .blocks = 3, .sequences = 8}).plan, device::kLxPlannedBytes);
}

// A token's heads lie a block apart in a head-major page: a copy per head, from a source that is made contiguous first.
TEST(AttentionProgram, TheStoreOfAHeadMajorCacheIsOneCopyPerHead) {
  constexpr int64_t kTokens = 64, kRows = kTokens * kKvHeads * kHeadSize * 2;
  const AttentionProgram token = kv_store_program(layer(KvLayout::kTokenMajor), kTokens);
  EXPECT_EQ(token.plan.ops.size(), 2u);
  const AttentionProgram head = kv_store_program(layer(KvLayout::kHeadMajor), kTokens);
  EXPECT_EQ(count(head, "indexcopy"), 2 * kKvHeads);
  EXPECT_EQ(count(head, "identity"), 2);
  const auto written = [](const AttentionProgram& program) {
    int64_t bytes = 0;
    for (const device::DeviceOp& op : program.plan.ops) bytes += op.write_bytes;
    return bytes;
  };
  EXPECT_EQ(written(token), 2 * kRows);
  EXPECT_EQ(written(head), 4 * kRows);
  EXPECT_GT(program_ns(head, device::measured_costs()), program_ns(token, device::measured_costs()));
}

TEST(AttentionProgram, RefusesByRule) {
  AttentionShape narrow = layer(KvLayout::kTokenMajor), odd = narrow;
  narrow.head_size = 96;
  odd.block_size = 100;
  const auto rule = [](const AttentionShape& shape) -> std::string {
    try {
      attention_program(shape, {.query = 1, .blocks = 1});
      return "accepted";
    } catch (const Error& error) {
      return std::string(error.what()).substr(0, 4);
    }
  };
  EXPECT_EQ(rule(narrow), "L-13");
  EXPECT_EQ(rule(odd), "L-14");
  EXPECT_EQ(rule(layer(KvLayout::kTokenMajor)), "accepted");
}

TEST(AttentionTimes, OfAProgramAreThoseOfItsOperations) {
  AttentionTimes times;
  const AttentionShape shape = layer(KvLayout::kHeadMajor);
  const Variant decode{.query = 1, .blocks = 4};
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(times.attention_ns(shape, decode), program_ns(head_major(decode), device::measured_costs()));
    EXPECT_EQ(times.attention_ns(shape, decode, device::spec_costs()),
              program_ns(head_major(decode), device::spec_costs()));
    EXPECT_EQ(times.kv_store_ns(shape, 64), program_ns(kv_store_program(shape, 64), device::measured_costs()));
  }
}

}  // namespace
}  // namespace spyre::compiler
