#include "plugins/spyre/device/dma.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace spyre::device {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// A choice of ranges for the loops of one host dimension: loop |loops[i]| runs over |counts[i]| steps from |firsts[i]|.
struct Box {
  std::vector<size_t> loops;
  std::vector<int64_t> firsts, counts;
};

// The coordinates below |limit| of dimension |dim|, as boxes. The loops of a dimension are the digits of a number in a
// mixed radix: all numbers whose leading digits are those of the limit, the next one smaller and the rest anything.
std::vector<Box> boxes_below(const std::vector<WalkLoop>& loops, int dim, int64_t limit) {
  std::vector<size_t> digits;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].dim == dim) digits.push_back(i);
  }
  std::stable_sort(digits.begin(), digits.end(), [&](size_t a, size_t b) { return loops[a].step > loops[b].step; });
  const WalkLoop& outermost = loops[digits.front()];
  SPYRE_CHECK(limit <= outermost.step * outermost.extent, "{} of {} elements", limit,
              outermost.step * outermost.extent);
  Box whole;
  for (const size_t i : digits) {
    whole.loops.push_back(i);
    whole.firsts.push_back(0);
    whole.counts.push_back(loops[i].extent);
  }
  if (limit == outermost.step * outermost.extent) return {whole};
  std::vector<Box> boxes;
  Box box = whole;
  for (size_t j = 0; j < digits.size(); ++j) {
    const WalkLoop& loop = loops[digits[j]];
    const int64_t digit = limit / loop.step % loop.extent;
    if (digit > 0) {
      boxes.push_back(box);
      boxes.back().counts[j] = digit;
    }
    box.firsts[j] = digit;
    box.counts[j] = 1;
  }
  return boxes;
}

// Loops of one step are dropped; a loop that continues the one inside of it on both sides is joined to it.
void compact(DmaNest& nest) {
  DmaNest joined{.host_offset = nest.host_offset, .device_offset = nest.device_offset};
  for (size_t i = nest.sizes.size(); i-- > 0;) {
    if (nest.sizes[i] == 1) continue;
    const bool first = joined.sizes.empty();
    if (!first && nest.host_strides[i] == joined.host_strides.back() * joined.sizes.back() &&
        nest.device_strides[i] == joined.device_strides.back() * joined.sizes.back()) {
      joined.sizes.back() *= nest.sizes[i];
      continue;
    }
    joined.sizes.push_back(nest.sizes[i]);
    joined.host_strides.push_back(nest.host_strides[i]);
    joined.device_strides.push_back(nest.device_strides[i]);
  }
  std::reverse(joined.sizes.begin(), joined.sizes.end());
  std::reverse(joined.host_strides.begin(), joined.host_strides.end());
  std::reverse(joined.device_strides.begin(), joined.device_strides.end());
  nest = std::move(joined);
}

DmaNest nest_of(const std::vector<WalkLoop>& loops, const std::vector<Box>& chosen,
                std::span<const int64_t> host_strides) {
  std::vector<int64_t> firsts(loops.size(), 0), counts(loops.size(), 1);  // a synthetic dimension has one element
  for (const Box& box : chosen) {
    for (size_t i = 0; i < box.loops.size(); ++i) {
      firsts[box.loops[i]] = box.firsts[i];
      counts[box.loops[i]] = box.counts[i];
    }
  }
  DmaNest nest;
  std::vector<int64_t> dense(loops.size(), 1);
  for (size_t i = loops.size(); i-- > 1;) dense[i - 1] = dense[i] * loops[i].extent;
  for (size_t i = 0; i < loops.size(); ++i) {
    const int64_t host_stride = loops[i].dim < 0 ? 0 : loops[i].step * host_strides[loops[i].dim];
    nest.host_offset += firsts[i] * host_stride;
    nest.device_offset += firsts[i] * dense[i];
    nest.sizes.push_back(counts[i]);
    nest.host_strides.push_back(host_stride);
    nest.device_strides.push_back(dense[i]);
  }
  compact(nest);
  return nest;
}

// Half bytes, by element number.
struct Nibbles {
  std::byte* at;
  std::byte load(int64_t i) const { return (at[i / 2] >> (i % 2 * 4)) & std::byte{0x0f}; }
  void store(int64_t i, std::byte value) const {
    const int shift = static_cast<int>(i % 2) * 4;
    at[i / 2] = (at[i / 2] & (std::byte{0x0f} << (4 - shift))) | (value << shift);
  }
};

// move(from, to) for every element of the nest, |from| on the host and |to| on the device.
template <typename Move>
void for_each_element(const DmaNest& nest, Move&& move) {
  const size_t rank = nest.sizes.size();
  if (rank == 0) return move(nest.host_offset, nest.device_offset);
  std::vector<int64_t> index(rank, 0);
  int64_t host = nest.host_offset, device = nest.device_offset;
  const int64_t inner = nest.sizes.back(), host_step = nest.host_strides.back(), step = nest.device_strides.back();
  while (true) {
    for (int64_t i = 0; i < inner; ++i) move(host + i * host_step, device + i * step);
    size_t d = rank - 1;
    while (d-- > 0) {
      host += nest.host_strides[d];
      device += nest.device_strides[d];
      if (++index[d] < nest.sizes[d]) break;
      host -= nest.host_strides[d] * nest.sizes[d];
      device -= nest.device_strides[d] * nest.sizes[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (rank == 1) return;
  }
}

template <typename Word>
void run_words(const DmaPlan& plan, const std::byte* from, std::byte* to, bool to_device) {
  const auto* source = reinterpret_cast<const Word*>(from);
  auto* target = reinterpret_cast<Word*>(to);
  for (const DmaNest& nest : plan.nests) {
    if (to_device) {
      for_each_element(nest, [&](int64_t host, int64_t device) { target[device] = source[host]; });
    } else {
      for_each_element(nest, [&](int64_t host, int64_t device) { target[host] = source[device]; });
    }
  }
}

void run(const DmaPlan& plan, const std::byte* from, std::byte* to, bool to_device) {
  switch (plan.bits) {
    case 8:
      return run_words<uint8_t>(plan, from, to, to_device);
    case 16:
      return run_words<uint16_t>(plan, from, to, to_device);
    case 32:
      return run_words<uint32_t>(plan, from, to, to_device);
    default:
      break;
  }
  SPYRE_CHECK(plan.bits == 4, "elements of {} bits", plan.bits);
  const Nibbles source{const_cast<std::byte*>(from)}, target{to};
  for (const DmaNest& nest : plan.nests) {
    for_each_element(nest, [&](int64_t host, int64_t device) {
      target.store(to_device ? device : host, source.load(to_device ? host : device));
    });
  }
}

}  // namespace

int64_t DmaNest::elements() const {
  return product(sizes);
}

std::string DmaNest::to_string() const {
  return fmt::format("{} host {} device {} at {},{}", fmt::join(sizes, "x"), fmt::join(host_strides, ","),
                     fmt::join(device_strides, ","), host_offset, device_offset);
}

int64_t DmaPlan::elements() const {
  int64_t elements = 0;
  for (const DmaNest& nest : nests) elements += nest.elements();
  return elements;
}

int64_t DmaPlan::bursts() const {
  int64_t bursts = 0;
  for (const DmaNest& nest : nests) {
    // Inner loops that are dense on the device are one run.
    int64_t run = 1;
    for (size_t i = nest.sizes.size(); i-- > 0 && nest.device_strides[i] == run;) run *= nest.sizes[i];
    bursts += nest.elements() / run;
  }
  return bursts;
}

DmaPlan plan_dma(const Layout& layout, std::span<const int64_t> extents, std::span<const int64_t> host_strides) {
  const std::vector<WalkLoop> loops = walk(layout);
  const size_t rank = layout.host_size.size();
  std::vector<int64_t> dense(rank, 1);
  for (size_t d = rank; d-- > 1;) dense[d - 1] = dense[d] * layout.host_size[d];
  if (!host_strides.empty()) dense.assign(host_strides.begin(), host_strides.end());
  std::vector<std::vector<Box>> choices{{}};
  for (size_t d = 0; d < rank; ++d) {
    const int64_t limit = extents.empty() ? layout.host_size[d] : extents[d];
    SPYRE_CHECK(limit <= layout.host_size[d], "{} of {} in dimension {}", limit, layout.host_size[d], d);
    std::vector<std::vector<Box>> extended;
    for (const std::vector<Box>& so_far : choices) {
      for (const Box& box : boxes_below(loops, static_cast<int>(d), limit)) {
        extended.push_back(so_far);
        extended.back().push_back(box);
      }
    }
    choices = std::move(extended);
  }
  DmaPlan plan{.bits = bits_of(layout.type)};
  for (const std::vector<Box>& chosen : choices) plan.nests.push_back(nest_of(loops, chosen, dense));
  return plan;
}

void run_to_device(const DmaPlan& plan, const std::byte* host, std::byte* device) {
  run(plan, host, device, true);
}

void run_to_host(const DmaPlan& plan, const std::byte* device, std::byte* host) {
  run(plan, device, host, false);
}

}  // namespace spyre::device
