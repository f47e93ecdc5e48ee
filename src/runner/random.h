// Random numbers by counter: a pure function of (key, counter), so that a draw depends on the request alone, never on
// what else was drawn. Philox 4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011); its published answers are in random_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spyre::runner {

using Philox4 = std::array<uint32_t, 4>;

inline Philox4 philox4x32(Philox4 counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1), all 53 bits of a double. Streams of one key have no counters in common.
inline double uniform(uint64_t key, uint64_t counter, uint32_t stream = 0) {
  const Philox4 r = philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, stream},
                               {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// A 64-bit key from a seed and a text: FNV-1a over the text, then mixed by Philox with the seed.
inline uint64_t text_key(uint64_t seed, std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  const Philox4 r = philox4x32({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), 1, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{r[0]} << 32 | r[1];
}

}  // namespace spyre::runner
