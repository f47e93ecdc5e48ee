// An oracle for plans of the scratchpad: looks at every stick that every core touches, and knows nothing of regions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/program.h"

namespace spyre::compiler::testing {

// The sticks that |core| touches of an operand, one by one.
inline std::set<int64_t> sticks(const device::CardPlan& plan, const device::DeviceOp& op, size_t operand,
                                int32_t buffer, int64_t core) {
  const device::CardBuffer& b = plan.buffers[buffer];
  std::set<int64_t> at{b.placement.offset};
  for (size_t d = 0; d < b.spec.axes.size(); ++d) {
    const bool stick = static_cast<int>(d) == b.placement.stick_dim;
    const int64_t card = b.spec.axes[d].card(), e = b.placement.stick_elements;
    const int64_t count = stick ? (card + e - 1) / e : card;
    const int walk = op.walks[operand][d];
    const int64_t split = walk < 0 ? 1 : op.splits[walk];
    const int64_t slice = walk < 0 ? 0 : device::slice_of_core(op.splits, static_cast<size_t>(walk), core);
    std::set<int64_t> next;
    for (const int64_t from : at) {
      for (int64_t i = slice * count / split; i < (slice + 1) * count / split; ++i) {
        next.insert(from + i * b.placement.strides[d]);
      }
    }
    at = std::move(next);
  }
  return at;
}

struct Life {
  int32_t buffer = 0, first = 1 << 30, last = -1;
};

// Of the resident buffers: each core always finds what it needs in its own scratchpad, and nothing lies on top of
// anything that is still wanted.
inline void expect_sound(const device::CardPlan& plan, int64_t capacity) {
  std::map<int32_t, Life> lives;
  std::map<int32_t, std::vector<std::set<int64_t>>> parts;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.ops.size()); ++i) {
    const device::DeviceOp& op = plan.ops[i];
    ASSERT_GE(op.read_bytes, 0);
    ASSERT_GE(op.write_bytes, 0);
    std::vector<int32_t> operands = op.inputs;
    operands.insert(operands.end(), op.outputs.begin(), op.outputs.end());
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] < 0) continue;
      const int32_t base = plan.buffers[operands[k]].view ? plan.buffers[operands[k]].base : operands[k];
      if (!plan.buffers[base].lx.resident()) continue;
      Life& life = lives[base];
      life.buffer = base;
      life.first = std::min(life.first, i);
      life.last = i;
      std::vector<std::set<int64_t>> now;
      for (int64_t core = 0; core < device::core_count(op.splits); ++core) {
        now.push_back(sticks(plan, op, k, operands[k], core));
      }
      const auto [found, inserted] = parts.emplace(base, now);
      ASSERT_TRUE(inserted || found->second == now) << op.name << " sees buffer " << base << " in another way";
      if (!inserted) continue;
      // A cut: together the cores have every stick once.
      std::set<int64_t> all;
      int64_t sum = 0;
      for (const auto& part : now) {
        all.insert(part.begin(), part.end());
        sum += std::ssize(part);
      }
      ASSERT_EQ(std::ssize(all), sum);
      ASSERT_EQ(sum * device::kStickBytes, plan.buffers[base].spec.card_bytes());
      ASSERT_LE(std::ssize(now.front()) * device::kStickBytes, plan.buffers[base].lx.bytes_per_core);
    }
  }
  for (const auto& [i, a] : lives) {
    const device::LxVerdict& at = plan.buffers[i].lx;
    ASSERT_EQ(at.address % 128, 0);
    ASSERT_LE(at.address + at.bytes_per_core, capacity);
    for (const auto& [j, b] : lives) {
      const device::LxVerdict& to = plan.buffers[j].lx;
      if (j <= i || a.last < b.first || b.last < a.first) continue;
      if (at.address + at.bytes_per_core <= to.address || to.address + to.bytes_per_core <= at.address) continue;
      // In place: at the same address, from the operation that reads the one for the last time and makes the other.
      ASSERT_EQ(at.address, to.address);
      ASSERT_TRUE(a.last == b.first || b.last == a.first);
    }
  }
}

}  // namespace spyre::compiler::testing
