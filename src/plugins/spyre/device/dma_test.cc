#include "plugins/spyre/device/dma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "plugins/spyre/device/card_transfer.h"
#include "plugins/spyre/device/matmul_sticks.h"
#include "plugins/spyre/device/padding.h"
#include "plugins/spyre/device/restickify.h"

namespace spyre::device {
namespace {

using Sizes = std::vector<int64_t>;

struct Random {
  explicit Random(uint32_t seed) : engine(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
  std::mt19937 engine;
};

constexpr CardType kTypes[] = {CardType::kDl16,    CardType::kFp32,    CardType::kInt32, CardType::kInt8,
                               CardType::kFp8E4M3, CardType::kFp8E5M2, CardType::kInt4};

Layout random_standard(Random& random, bool sparse) {
  const CardType type = kTypes[random.below(7)];
  const int64_t rank = random.below(5);
  Sizes sizes;
  for (int64_t d = 0; d < rank; ++d) sizes.push_back(1 + random.below(d + 1 == rank ? 300 : 8));
  std::shuffle(sizes.begin(), sizes.end(), random.engine);
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random.engine);
  if (sparse && rank > 0) order.push_back(-1);
  return default_layout(type, sizes, order);
}

// Every kind of layout there is.
Layout random_layout(Random& random) {
  switch (random.below(6)) {
    case 0:
      return random_standard(random, true);
    case 1:
      return exx2_layout(random.below(2) == 0 ? CardType::kDl16 : CardType::kFp32, {1 + random.below(9)});
    case 2: {
      const bool widen = random.below(2) == 0;
      const Sizes sizes{1 + random.below(5), 64 * (1 + random.below(4)), 1 + random.below(4)};
      const std::vector<int> order = random.below(2) == 0 ? std::vector<int>{0, 2, 1} : std::vector<int>{2, 0, 1};
      const Layout from = default_layout(widen ? CardType::kDl16 : CardType::kFp32, sizes, order);
      return cast_layout(from, widen ? CardType::kFp32 : CardType::kDl16);
    }
    case 3: {
      const CardType types[] = {CardType::kInt8, CardType::kInt4, CardType::kFp8E5M2};
      const MatmulLayouts made =
          matmul_layouts(types[random.below(3)], {.batch = Sizes(static_cast<size_t>(random.below(3)), 2),
                                                  .m = 1 + random.below(7),
                                                  .k = 1 + random.below(300),
                                                  .n = 1 + random.below(200)});
      return random.below(2) == 0 ? made.x : made.y;
    }
    default:
      return random_standard(random, false);
  }
}

// Elements as numbers, whatever their width.
struct Elements {
  int bits;
  std::vector<std::byte> bytes;
  Elements(int bits, int64_t count) : bits(bits), bytes(static_cast<size_t>((count * bits + 7) / 8)) {}
  uint32_t get(int64_t i) const {
    if (bits == 4) return static_cast<uint32_t>(bytes[i / 2] >> (i % 2 * 4)) & 0xfu;
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + i * bits / 8, static_cast<size_t>(bits / 8));
    return value;
  }
  void set(int64_t i, uint32_t value) {
    if (bits == 4) {
      std::byte& at = bytes[static_cast<size_t>(i / 2)];
      at = i % 2 == 0 ? (at & std::byte{0xf0}) | std::byte(value & 0xfu)
                      : (at & std::byte{0x0f}) | std::byte(value << 4);
      return;
    }
    std::memcpy(bytes.data() + i * bits / 8, &value, static_cast<size_t>(bits / 8));
  }
};

uint32_t mask_of(int bits) {
  return bits == 32 ? ~0u : (1u << bits) - 1u;
}

template <typename Visit>
void for_each(const Sizes& extents, Visit&& visit) {
  Sizes at(extents.size(), 0);
  while (true) {
    visit(at);
    size_t d = extents.size();
    while (d-- > 0 && ++at[d] == extents[d]) at[d] = 0;
    if (d == static_cast<size_t>(-1)) return;
  }
}

// By nests, and element by element through Layout::offset(): the same memory, padding untouched; and back again.
TEST(Dma, EveryLayoutIsEncodedAndDecoded) {
  Random random(3);
  for (int round = 0; round < 800; ++round) {
    const Layout layout = random_layout(random);
    const int bits = bits_of(layout.type);
    const uint32_t blank = 0xa5a5a5a5u & mask_of(bits);
    int64_t count = 1;
    for (const int64_t size : layout.host_size) count *= size;
    Elements host(bits, count), nests(bits, layout.device_elements()), expected(bits, layout.device_elements());
    for (int64_t i = 0; i < count; ++i) host.set(i, static_cast<uint32_t>(random.engine()) & mask_of(bits));
    for (int64_t i = 0; i < layout.device_elements(); ++i) {
      nests.set(i, blank);
      expected.set(i, blank);
    }
    int64_t next = 0;
    for_each(layout.host_size, [&](const Sizes& at) { expected.set(layout.offset(at), host.get(next++)); });
    const DmaPlan plan = plan_dma(layout);
    run_to_device(plan, host.bytes.data(), nests.bytes.data());
    ASSERT_EQ(nests.bytes, expected.bytes) << "round " << round << ": " << layout.to_string();
    EXPECT_EQ(plan.elements(), count);

    Elements back(bits, count);
    run_to_host(plan, nests.bytes.data(), back.bytes.data());
    ASSERT_EQ(back.bytes, host.bytes) << layout.to_string();
  }
}

// A prefix of the first dimension, from a strided host tensor: nothing else is touched.
TEST(Dma, PartsAndStridedSources) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    const Sizes sizes{1 + random.below(9), 1 + random.below(150)};
    const Layout layout =
        default_layout(CardType::kDl16, sizes, random.below(2) == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
    const Sizes extents{1 + random.below(sizes[0]), sizes[1]}, strides{1, sizes[0]};  // a transposed source
    std::vector<uint16_t> host(static_cast<size_t>(sizes[0] * sizes[1]));
    std::iota(host.begin(), host.end(), uint16_t{0});
    std::vector<uint16_t> device(static_cast<size_t>(layout.device_elements()), 0xffff), expected = device;
    for_each(extents, [&](const Sizes& at) { expected[layout.offset(at)] = host[at[0] + at[1] * sizes[0]]; });
    run_to_device(plan_dma(layout, extents, strides), reinterpret_cast<const std::byte*>(host.data()),
                  reinterpret_cast<std::byte*>(device.data()));
    ASSERT_EQ(device, expected);
  }
}

// One nest, and a second one where the last stick is partial.
TEST(Dma, NestsOfPublishedLayouts) {
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {1024, 256})).nests,
            (std::vector<DmaNest>{{{4, 1024, 64}, {64, 256, 1}, {65536, 64, 1}, 0, 0}}));
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {5, 100, 150})).nests,
            (std::vector<DmaNest>{{{100, 2, 5, 64}, {150, 64, 15000, 1}, {960, 320, 64, 1}, 0, 0},
                                  {{100, 5, 22}, {150, 15000, 1}, {960, 64, 1}, 128, 640}}));
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {128})).nests, (std::vector<DmaNest>{{{128}, {1}, {1}, 0, 0}}));
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {77}, {0, -1})).nests,
            (std::vector<DmaNest>{{{77}, {1}, {64}, 0, 0}}));
  EXPECT_EQ(plan_dma(default_layout(CardType::kFp32, {})).nests, (std::vector<DmaNest>{{{}, {}, {}, 0, 0}}));
}

TEST(Dma, BurstsAreRunsOfDeviceMemory) {
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {1024, 256})).bursts(), 1);
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {1024, 100})).bursts(), 1 + 1024);
  EXPECT_EQ(plan_dma(default_layout(CardType::kDl16, {77}, {0, -1})).bursts(), 77);
}

// ---------------------------------------------------------------- the host's conversion

std::vector<std::byte> converted(DType dtype, const Conversion& conversion, const void* host, int64_t n, size_t size) {
  std::vector<std::byte> card(static_cast<size_t>(n) * size);
  convert_to_card(dtype, conversion, static_cast<const std::byte*>(host), n, card.data());
  return card;
}

TEST(HostConversion, HalvesCrossThroughDl16) {
  const uint16_t halves[] = {f32_to_f16(1), f32_to_f16(-2.5f), 0x7bff};
  const Conversion card{.dl16 = Dl16Rules{}};
  const std::vector<std::byte> codes = converted(DType::kF16, card, halves, 3, 2);
  const auto* words = reinterpret_cast<const uint16_t*>(codes.data());
  EXPECT_EQ(words[0], 0x3e00);
  EXPECT_EQ(dl16_to_f32(words[1]), -2.5f);
  EXPECT_EQ(dl16_to_f32(words[2]), 65472);
  uint16_t back[3];
  convert_to_host(DType::kF16, card, codes.data(), 3, reinterpret_cast<std::byte*>(back));
  EXPECT_EQ(f16_to_f32(back[2]), 65472);
  // Without it the words are what they were.
  EXPECT_EQ(std::memcmp(converted(DType::kF16, {}, halves, 3, 2).data(), halves, 6), 0);
}

TEST(HostConversion, BoolTakesTwoBytes) {
  const uint8_t flags[] = {0, 1, 1};
  const Conversion card{.dl16 = Dl16Rules{}};
  const std::vector<std::byte> codes = converted(DType::kBool, card, flags, 3, 2);
  EXPECT_EQ(reinterpret_cast<const uint16_t*>(codes.data())[1], 0x3e00);
  uint8_t back[3];
  convert_to_host(DType::kBool, card, codes.data(), 3, reinterpret_cast<std::byte*>(back));
  EXPECT_EQ(std::memcmp(back, flags, 3), 0);
}

TEST(HostConversion, L24_IntNarrowing) {
  const int64_t fits[] = {-2147483648LL, 0, 2147483647LL};
  const std::vector<std::byte> words = converted(DType::kI64, {}, fits, 3, 4);
  int64_t back[3];
  convert_to_host(DType::kI64, {}, words.data(), 3, reinterpret_cast<std::byte*>(back));
  EXPECT_EQ(std::memcmp(back, fits, sizeof(fits)), 0);
  for (const int64_t large : {2147483648LL, -2147483649LL}) {
    EXPECT_THROW(converted(DType::kI64, {}, &large, 1, 4), Error);
  }
}

// ---------------------------------------------------------------- restickify

TEST(Restickify, MovesEveryElementAndNothingElse) {
  Random random(6);
  for (int round = 0; round < 100; ++round) {
    Sizes sizes{1 + random.below(150), 1 + random.below(4), 1 + random.below(150)};
    const Layout from = default_layout(CardType::kDl16, sizes);
    const Layout to = restickified(from, random.below(4) == 0 ? 1 : 0);
    std::vector<uint16_t> source(static_cast<size_t>(from.device_elements()), 0xeeee);
    std::vector<uint16_t> target(static_cast<size_t>(to.device_elements()), 0xdddd), expected = target;
    for_each(sizes, [&](const Sizes& at) {
      const auto value = static_cast<uint16_t>(random.below(0xd000));
      source[from.offset(at)] = value;
      expected[to.offset(at)] = value;
    });
    transpose_tiles(Placement::of(from), Placement::of(to), sizes, reinterpret_cast<const std::byte*>(source.data()),
                    reinterpret_cast<std::byte*>(target.data()), 2);
    ASSERT_EQ(target, expected) << from.to_string() << " to " << to.to_string();
  }
}

// ---------------------------------------------------------------- padding

// Whole sticks reduced after the fill give what the elements alone give.
TEST(Padding, FillsAreNeutral) {
  Random random(8);
  for (int round = 0; round < 50; ++round) {
    const Sizes sizes{1 + random.below(5), 1 + random.below(150)};
    const Layout layout = default_layout(CardType::kDl16, sizes);
    std::vector<uint16_t> memory(static_cast<size_t>(layout.device_elements()), kDl16Special);
    std::vector<float> sums(static_cast<size_t>(sizes[0])), most(sums.size(), -1e9f), least(sums.size(), 1e9f);
    for_each(sizes, [&](const Sizes& at) {
      const auto x = static_cast<float>(random.below(64) - 32);
      memory[layout.offset(at)] = f32_to_dl16(x);
      sums[at[0]] += x, most[at[0]] = std::max(most[at[0]], x), least[at[0]] = std::min(least[at[0]], x);
    });
    for (const Fill fill : {Fill::kZero, Fill::kLowest, Fill::kHighest}) {
      fill_padding(layout, fill, reinterpret_cast<std::byte*>(memory.data()));
      for (int64_t row = 0; row < sizes[0]; ++row) {
        float sum = 0, top = -1e9f, bottom = 1e9f;
        for (int64_t c = 0; c < layout.device_size[0] * 64; ++c) {
          const float x = dl16_to_f32(memory[(c / 64 * sizes[0] + row) * 64 + c % 64]);
          sum += x, top = std::max(top, x), bottom = std::min(bottom, x);
        }
        if (fill == Fill::kZero) {
          ASSERT_EQ(sum, sums[row]);
        } else {
          ASSERT_EQ(fill == Fill::kLowest ? top : bottom, fill == Fill::kLowest ? most[row] : least[row]);
        }
      }
    }
  }
}

TEST(Padding, SparseSticksKeepTheirOneElement) {
  const Layout layout = default_layout(CardType::kFp32, {3}, {0, -1});
  std::vector<float> memory(static_cast<size_t>(layout.device_elements()), 7);
  fill_padding(layout, Fill::kZero, reinterpret_cast<std::byte*>(memory.data()));
  for (size_t i = 0; i < memory.size(); ++i) EXPECT_EQ(memory[i], i % 32 == 0 ? 7 : 0) << i;
}

TEST(Padding, RowsBehindTheEndOfAPackedWeightAreZeroed) {
  const Layout layout = packed_layout(CardType::kInt8, {3, 64}, {{0, 2}, {1, 64}});
  std::vector<uint8_t> memory(static_cast<size_t>(layout.device_elements()), 9);
  fill_padding(layout, Fill::kZero, reinterpret_cast<std::byte*>(memory.data()));
  for (size_t i = 0; i < memory.size(); ++i) EXPECT_EQ(memory[i], i < 3 * 64 ? 9 : 0) << i;
}

}  // namespace
}  // namespace spyre::device
