// The answer to a sizing question: parameters, what lies on each card, the card's limits, times under both cost
// configurations, and what to change when it does not fit. docs/sizing.md works three questions through.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "platform/platform.h"
#include "platform/sizing.h"

namespace spyre::sizing {

// Bounds of a question: with them every product of sizes stays within 64 bits.
inline constexpr int64_t kMostSequences = 65536, kMostTokens = int64_t{1} << 30, kMostCards = 48;

// Throws Error(kInvalidArgument) naming the number that is out of range (beyond the model's positions, more cards than
// a system has, heads that do not divide), and what read_model_shape() throws.
//
// Keys: model, question, assumed (list of lines), parameters, card, limits, segments, fits, time, advice (list of
// lines); with details also tables (tokens over batch, context and cards), programs, rules and ceilings. Bytes are of
// one card, times in seconds but for those of programs.
nlohmann::json size_model(const platform::Platform& platform, platform::SizingQuestion question);

}  // namespace spyre::sizing
