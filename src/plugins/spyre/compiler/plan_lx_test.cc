#include "plugins/spyre/compiler/plan_lx.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/random_graph.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/plan_lx_testing.h"

namespace spyre::compiler {
namespace {

using device::Axis;
using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::LxReason;
using device::Placement;
using device::TensorSpec;
using Walks = std::vector<std::vector<int>>;

// A plan written down by hand. Buffers are f16 [rows, columns]; operations iterate (rows, sticks of columns).
class Plan {
 public:
  int32_t buffer(int64_t rows, int64_t columns, BufferHome home = BufferHome::kPool) {
    CardBuffer b;
    b.spec = TensorSpec::plain(DType::kF16, {rows, columns});
    b.home = home;
    b.placement = Placement::of(b.spec.layout);
    plan_.buffers.push_back(std::move(b));
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }
  // Columns [start, start + columns) of |base|.
  int32_t slice(int32_t base, int64_t start, int64_t columns) {
    CardBuffer b;
    b.spec = TensorSpec::plain(DType::kF16, {plan_.buffers[base].spec.axes[0].card(), columns});
    b.home = BufferHome::kNone;
    b.view = true;
    b.base = base;
    b.placement = plan_.buffers[base].placement.sliced(1, start);
    plan_.buffers.push_back(std::move(b));
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }
  DeviceOp& op(const char* name, std::vector<int32_t> inputs, int32_t output, std::vector<int64_t> splits,
               Walks walks = {}) {
    DeviceOp made{.name = name, .inputs = std::move(inputs), .outputs = {output}, .splits = std::move(splits)};
    made.walks = std::move(walks);
    if (made.walks.empty()) made.walks.assign(made.inputs.size() + 1, {0, 1});
    for (const int32_t b : made.inputs) made.read_bytes += plan_.buffers[b].spec.card_bytes();
    made.write_bytes = plan_.buffers[output].spec.card_bytes();
    plan_.ops.push_back(std::move(made));
    return plan_.ops.back();
  }
  CardPlan planned(const LxOptions& options = {}) const {
    CardPlan plan = plan_;
    plan_lx(plan, options);
    return plan;
  }

 private:
  CardPlan plan_;
};

constexpr int64_t kBytes = 64 * 256 * 2;  // of a [64, 256] buffer

//  x -> a -> b -> y: nothing but x and y in device memory, and b where a was.
TEST(PlanLx, AChainStaysInTheScratchpad) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), a = plan.buffer(64, 256), b = plan.buffer(64, 256),
                y = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, a, {32, 1});
  plan.op("neg", {a}, b, {32, 1});
  plan.op("exp", {b}, y, {32, 1});
  const CardPlan planned = plan.planned();
  EXPECT_EQ(planned.buffers[x].lx.reason, LxReason::kReadOnce);
  EXPECT_EQ(planned.buffers[y].lx.reason, LxReason::kUnread);
  for (const int32_t resident : {a, b}) {
    EXPECT_EQ(planned.buffers[resident].lx.reason, LxReason::kResident);
    EXPECT_EQ(planned.buffers[resident].lx.address, 0);
    EXPECT_EQ(planned.buffers[resident].lx.bytes_per_core, kBytes / 32);
  }
  EXPECT_EQ(planned.lx.peak_bytes, kBytes / 32);
  EXPECT_EQ(planned.lx.saved_bytes, 4 * kBytes);
  const auto traffic = [&](size_t op) {
    const DeviceOp& o = planned.ops[op];
    return std::vector<int64_t>{o.read_bytes, o.write_bytes, o.lx_bytes};
  };
  EXPECT_EQ(traffic(0), (std::vector<int64_t>{kBytes, 0, kBytes}));
  EXPECT_EQ(traffic(1), (std::vector<int64_t>{0, 0, 2 * kBytes}));
  EXPECT_EQ(traffic(2), (std::vector<int64_t>{0, kBytes, kBytes}));
}

// What a buffer's verdict is when it is written with |writer| splits and read with |reader| splits of (rows, sticks).
device::LxVerdict between(std::vector<int64_t> writer, std::vector<int64_t> reader, Walks walks = {}) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), a = plan.buffer(64, 256),
                y = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, a, std::move(writer));
  plan.op("neg", {a}, y, std::move(reader), std::move(walks));
  return plan.planned().buffers[a].lx;
}

TEST(PlanLx, WriterAndReaderMustSeeTheSameParts) {
  EXPECT_EQ(between({8, 4}, {8, 4}).reason, LxReason::kResident);
  const device::LxVerdict other_cut = between({8, 4}, {32, 1});
  EXPECT_EQ(other_cut.reason, LxReason::kViewsDiffer);
  EXPECT_EQ(other_cut.op, 1);
  EXPECT_FALSE(other_cut.resident());
  // Fewer cores hold more each; the others of the reader have nothing.
  EXPECT_EQ(between({8, 1}, {8, 4}).reason, LxReason::kViewsDiffer);
  // Equal cuts on other cores: iteration dimensions that change places.
  EXPECT_EQ(between({2, 4}, {4, 2}, {{1, 0}, {1, 0}}).reason, LxReason::kViewsDiffer);
  // A broadcast reader wants all of it on every core.
  EXPECT_EQ(between({8, 1}, {8, 1}, {{-1, 1}, {0, 1}}).reason, LxReason::kViewsDiffer);
}

// x -> a -> y, where y's cores want rows that a's do not have: over the ring instead of through memory.
TEST(PlanLx, ARelayoutGivesReadersTheirParts) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), a = plan.buffer(64, 256),
                y = plan.buffer(64, 256, BufferHome::kOutput), z = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, a, {8, 4});
  plan.op("neg", {a}, y, {32, 1});
  plan.op("abs", {a}, z, {32, 1});
  EXPECT_TRUE(plan.planned().lx_copies.empty());
  const CardPlan planned = plan.planned({.relayout = true});
  EXPECT_EQ(planned.buffers[a].lx.reason, LxReason::kResident);
  ASSERT_EQ(planned.lx_copies.size(), 1u) << "one for both readers";
  const device::LxCopy& copy = planned.lx_copies[0];
  EXPECT_EQ(copy.buffer, a);
  EXPECT_EQ(copy.first, 1);
  EXPECT_EQ(copy.last, 2);
  // The readers' cut is the finer one: two rows of each of four columns of sticks, rows over 32 cores.
  EXPECT_EQ(copy.move, (device::LxRelayout{.runs = 4, .split = 32, .bytes = kBytes / 32}));
  EXPECT_EQ(planned.lx.saved_bytes, 3 * kBytes);
  EXPECT_EQ(planned.lx.peak_bytes, 2 * kBytes / 32);
  EXPECT_EQ(planned.ops[0].write_bytes, 0);
  EXPECT_EQ(planned.ops[1].read_bytes, 0);
  testing::expect_sound(planned, device::kLxPlannedBytes);
  // Both have room, or neither.
  const CardPlan narrow = plan.planned({.capacity = kBytes / 32, .relayout = true});
  EXPECT_EQ(narrow.buffers[a].lx.reason, LxReason::kNoRoom);
  EXPECT_TRUE(narrow.lx_copies.empty());
  EXPECT_EQ(narrow.ops[1].read_bytes, kBytes);
  EXPECT_EQ(narrow.lx.saved_bytes, 0);
}

// What no cut of the buffer is cannot be had over the ring.
TEST(PlanLx, ARelayoutMovesCutsOnly) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), a = plan.buffer(64, 256),
                y = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, a, {8, 1});
  plan.op("neg", {a}, y, {8, 1}, {{-1, 1}, {0, 1}});  // all rows on every core
  EXPECT_EQ(plan.planned({.relayout = true}).buffers[a].lx.reason, LxReason::kViewsDiffer);
}

// A broadcast input is read alike by both, but no copy of it is cut over the cores that way: eight have each part.
TEST(PlanLx, ACloneIsCutNotRepeated) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), y = plan.buffer(64, 256, BufferHome::kOutput),
                z = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, y, {8, 4}, {{-1, 1}, {0, 1}});
  plan.op("neg", {x}, z, {8, 4}, {{-1, 1}, {0, 1}});
  EXPECT_EQ(plan.planned().buffers[x].lx.reason, LxReason::kViewsDiffer);
}

TEST(PlanLx, WhatCannotLiveThere) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), w = plan.buffer(256, 256, BufferHome::kParameter),
                index = plan.buffer(1, 64, BufferHome::kInput), sums = plan.buffer(64, 256),
                moved = plan.buffer(64, 256), laid = plan.buffer(64, 256), table = plan.buffer(64, 256),
                found = plan.buffer(64, 256), state = plan.buffer(64, 256, BufferHome::kState),
                given = plan.buffer(64, 256), part = plan.slice(found, 64, 128),
                half = plan.buffer(64, 128, BufferHome::kOutput), out = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("batchmatmul", {x, w}, sums, {2, 16, 1}, {{1, 0}, {0, 2}, {1, 2}}).reduced_dim = 0;
  plan.op("exp", {sums}, moved, {32, 1});
  plan.op("restickify", {moved}, laid, {32, 1});
  plan.op("neg", {laid}, table, {32, 1});
  plan.op("gather", {table, index}, found, {32, 1}, {{-1, 1}, {-1, -1}, {0, 1}});
  plan.op("neg", {part}, half, {32, 1});
  plan.op("neg", {laid}, given, {32, 1});
  plan.op("kv_store", {state, given}, state, {32, 1});
  plan.op("attention", {state, given}, out, {32, 1});
  const CardPlan planned = plan.planned();
  const auto reason = [&](int32_t b) { return planned.buffers[b].lx.reason; };
  EXPECT_EQ(reason(sums), LxReason::kPartialSums);
  EXPECT_EQ(reason(moved), LxReason::kRestickifyInput);
  EXPECT_EQ(planned.buffers[moved].lx.op, 2);
  EXPECT_EQ(reason(laid), LxReason::kResident);
  EXPECT_EQ(reason(table), LxReason::kGatherOperand);
  EXPECT_EQ(reason(index), LxReason::kGatherOperand);
  EXPECT_EQ(reason(found), LxReason::kPartialRead);
  EXPECT_EQ(reason(part), LxReason::kView);
  EXPECT_EQ(reason(state), LxReason::kMutated);
  EXPECT_EQ(reason(given), LxReason::kExternUser);
  EXPECT_EQ(reason(out), LxReason::kExternUser);
  // With local reads proved, a restickify is a reader like any other.
  EXPECT_EQ(plan.planned({.restickify_reads = true}).buffers[moved].lx.reason, LxReason::kResident);
}

TEST(PlanLx, InputsAreClonedInAndOutputsOut) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), y = plan.buffer(64, 256, BufferHome::kOutput),
                z = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, y, {32, 1});
  plan.op("add", {x, y}, z, {32, 1});
  const CardPlan planned = plan.planned();
  EXPECT_EQ(planned.buffers[x].lx.reason, LxReason::kClonedIn);
  EXPECT_EQ(planned.buffers[y].lx.reason, LxReason::kClonedOut);
  // Each makes its one trip.
  EXPECT_EQ(planned.ops[0].read_bytes, kBytes);
  EXPECT_EQ(planned.ops[0].write_bytes, kBytes);
  EXPECT_EQ(planned.ops[1].read_bytes, 0);
  EXPECT_EQ(planned.ops[1].write_bytes, kBytes);
  EXPECT_EQ(planned.lx.saved_bytes, 2 * kBytes);
}

TEST(PlanLx, KeepsWithinTheBudget) {
  Plan plan;
  const int32_t x = plan.buffer(64, 256, BufferHome::kInput), a = plan.buffer(64, 256), b = plan.buffer(64, 256),
                y = plan.buffer(64, 256, BufferHome::kOutput);
  plan.op("exp", {x}, a, {32, 1});
  plan.op("exp", {x}, b, {32, 1});
  plan.op("add", {a, b}, y, {32, 1});
  const CardPlan roomy = plan.planned({.capacity = 3 * kBytes / 32});
  EXPECT_EQ(roomy.lx.resident, 3);
  const CardPlan narrow = plan.planned({.capacity = kBytes / 32});
  EXPECT_EQ(narrow.lx.candidates, 3);
  // x and, in its place, b; nothing for what lives beside both.
  EXPECT_EQ(narrow.lx.resident, 2);
  EXPECT_EQ(narrow.buffers[x].lx.address, narrow.buffers[b].lx.address);
  EXPECT_EQ(narrow.buffers[a].lx.reason, LxReason::kNoRoom);
  const CardPlan tiny = plan.planned({.capacity = kBytes / 32 - 1});
  EXPECT_EQ(tiny.buffers[a].lx.reason, LxReason::kTooLarge);
  EXPECT_EQ(tiny.lx.candidates, 0);
}

// ---------------------------------------------------------------- any graph

TEST(PlanLx, RandomGraphsAreSound) {
  int64_t resident = 0, refused = 0, copies = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Compiler compiler({.features = CpuFeatures::of(CpuLevel::kPortable)});
    std::shared_ptr<const device::Program> program;
    try {
      program = compiler.compile(graph::random_graph(seed, {.max_elements = 4000}).graph);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
      ++refused;
      continue;
    }
    for (const int64_t capacity : {int64_t{1024}, device::kLxPlannedBytes}) {
      for (const LxSolver solver : {LxSolver::kFirstFit, LxSolver::kAnnealing}) {
        CardPlan plan = program->card;
        plan_lx(plan,
                {.capacity = capacity, .solver = solver, .restickify_reads = seed % 2 == 0, .relayout = seed % 3 == 0});
        copies += std::ssize(plan.lx_copies);
        testing::expect_sound(plan, capacity);
        if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", capacity " << capacity;
        resident += plan.lx.resident;
      }
    }
  }
  EXPECT_GT(resident, 500);
  EXPECT_GT(copies, 50);
  EXPECT_LT(refused, 250);
}

}  // namespace
}  // namespace spyre::compiler
