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
  int64_t address = 0, bytes_per_core = 0;
  int32_t first = 1 << 30, last = -1;
  void wanted(int32_t op) {
    first = std::min(first, op);
    last = std::max(last, op);
  }
};

// Which copy of |buffer| operand |k| of operation |i| reads; -1: the buffer itself.
inline int copy_read(const device::CardPlan& plan, int32_t buffer, int32_t i, size_t k) {
  for (size_t c = 0; c < plan.lx_copies.size(); ++c) {
    const auto& readers = plan.lx_copies[c].readers;
    const bool reads = std::find(readers.begin(), readers.end(), std::pair(i, k)) != readers.end();
    if (plan.lx_copies[c].buffer == buffer && reads) return static_cast<int>(c);
  }
  return -1;
}

// Of the resident buffers and their copies: each core always finds what it needs in its own scratchpad, and nothing
// lies on top of anything that is still wanted.
inline void expect_sound(const device::CardPlan& plan, int64_t capacity) {
  std::map<std::pair<int32_t, int>, Life> lives;
  std::map<std::pair<int32_t, int>, std::vector<std::set<int64_t>>> parts;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.ops.size()); ++i) {
    const device::DeviceOp& op = plan.ops[i];
    ASSERT_GE(op.read_bytes, 0);
    ASSERT_GE(op.write_bytes, 0);
    std::vector<int32_t> operands = op.inputs;
    operands.insert(operands.end(), op.outputs.begin(), op.outputs.end());
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] < 0) continue;
      const int32_t base = plan.buffers[operands[k]].view ? plan.buffers[operands[k]].base : operands[k];
      const device::LxVerdict& own = plan.buffers[base].lx;
      if (!own.resident()) continue;
      const std::pair key(base, copy_read(plan, base, i, k));
      Life& life = lives[key];
      life.address = key.second < 0 ? own.address : plan.lx_copies[key.second].address;
      life.bytes_per_core = key.second < 0 ? own.bytes_per_core : plan.lx_copies[key.second].bytes_per_core;
      life.wanted(i);
      // A copy is made from the buffer right before its first reader.
      if (key.second >= 0) lives[{base, -1}].wanted(plan.lx_copies[key.second].first);
      std::vector<std::set<int64_t>> now;
      for (int64_t core = 0; core < device::core_count(op.splits); ++core) {
        now.push_back(sticks(plan, op, k, operands[k], core));
      }
      const auto [found, inserted] = parts.emplace(key, now);
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
      ASSERT_LE(std::ssize(now.front()) * device::kStickBytes, life.bytes_per_core);
    }
  }
  for (const auto& [i, a] : lives) {
    ASSERT_EQ(a.address % 128, 0);
    ASSERT_LE(a.address + a.bytes_per_core, capacity);
    for (const auto& [j, b] : lives) {
      if (j <= i || a.last < b.first || b.last < a.first) continue;
      if (a.address + a.bytes_per_core <= b.address || b.address + b.bytes_per_core <= a.address) continue;
      // In place: at the same address, from the operation that reads the one for the last time and makes the other.
      ASSERT_EQ(a.address, b.address);
      ASSERT_TRUE(a.last == b.first || b.last == a.first);
      ASSERT_NE(i.first, j.first) << "a copy on top of what it is made from";
    }
  }
}

}  // namespace spyre::compiler::testing
