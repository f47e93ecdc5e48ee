// Whether a share of a model and its KV cache fit one card: the card's limits, each with what is asked of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/spyre/sizing/card_share.h"

namespace spyre::sizing {

inline constexpr int64_t kSegments = 8;                    // of 16 GiB; the last holds programs (M)
inline constexpr int64_t kDataSegments = 6;                // without it and the one of pooled intermediates
inline constexpr int64_t kPoolBytes = int64_t{14} << 30;   // used of the pool's segment (M)
inline constexpr int64_t kDmaMappings = 65535;             // per process (M)
inline constexpr int64_t kGatherBytes = int64_t{1} << 30;  // of one layer's K, or V, that pages are gathered from (M)

struct CardLimit {
  std::string_view name, unit;
  int64_t used = 0, limit = 0;
  bool met = true;
  std::string_view confidence, why;
};

struct CardSegment {
  std::string holds;
  int64_t used = 0;
};

struct CardFit {
  int64_t kv_blocks = 0;  // the null block included
  int64_t kv_bytes = 0, weight_bytes = 0, pool_bytes = 0;
  std::vector<CardLimit> limits;
  std::vector<CardSegment> segments;
  bool fits() const;
};

struct KvDemand {
  int64_t sequences = 0, length = 0, block_size = 128;  // 0 sequences: none (an encoder)
  int64_t blocks() const;                               // with the null block
};

CardFit fit_card(const ModelShape& shape, const CardShare& share, const KvDemand& kv, int64_t pool_bytes);

}  // namespace spyre::sizing
