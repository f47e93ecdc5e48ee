#include "nn/layers/rotary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "base/half.h"

namespace spyre::nn {
namespace {

// The published formulas once more, in double and written the other way round: from wavelengths.
double expected_frequency(const formats::RopeConfig& rope, int64_t head_size, int64_t i) {
  const double wavelength =
      2 * std::numbers::pi *
      std::exp(std::log(rope.theta) * 2.0 * static_cast<double>(i) / static_cast<double>(head_size));
  const double plain = 2 * std::numbers::pi / wavelength;
  if (rope.type == "linear") return plain / rope.factor;
  if (rope.type == "yarn") {
    // The dimension at which so many turns fit into the original context, by halving instead of by logarithms.
    const auto dimension_of = [&](double turns) {
      double low = -1e4, high = 1e4;
      for (int step = 0; step < 200; ++step) {
        const double middle = (low + high) / 2;
        const double period = 2 * std::numbers::pi * std::pow(rope.theta, 2 * middle / static_cast<double>(head_size));
        (static_cast<double>(rope.original_max_position) / period > turns ? low : high) = middle;
      }
      return low;
    };
    double first = dimension_of(rope.beta_fast), last = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      first = std::floor(first + 1e-9);
      last = std::ceil(last - 1e-9);
    }
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(head_size) - 1);
    const double at = static_cast<double>(i);
    const double divided = at <= first ? 0 : at >= last ? 1 : (at - first) / (last - first);
    return plain * (1 - divided) + plain / rope.factor * divided;
  }
  if (rope.type != "llama3") return plain;
  // Number of full turns within the original context: many are kept, few are slowed down, between them a blend.
  const double turns = static_cast<double>(rope.original_max_position) / wavelength;
  if (turns > rope.high_freq_factor) return plain;
  if (turns < rope.low_freq_factor) return plain / rope.factor;
  const double kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return plain * (kept + (1 - kept) / rope.factor);
}

std::vector<formats::RopeConfig> configs() {
  return {{},
          {.theta = 500000},
          {.theta = 10000, .type = "linear", .factor = 4},
          {.theta = 500000,
           .type = "llama3",
           .factor = 8,
           .low_freq_factor = 1,
           .high_freq_factor = 4,
           .original_max_position = 8192},
          {.theta = 10000,
           .type = "llama3",
           .factor = 32,
           .low_freq_factor = 1,
           .high_freq_factor = 4,
           .original_max_position = 256},
          {.theta = 1e6, .type = "yarn", .factor = 4, .original_max_position = 32768},
          {.theta = 10000,
           .type = "yarn",
           .factor = 16,
           .original_max_position = 128,
           .beta_fast = 20,
           .beta_slow = 2,
           .truncate = false}};
}

// Reads the table that the layer gives to the device.
class Table : public RotaryEmbedding {
 public:
  explicit Table(const Options& options) : RotaryEmbedding(options) {}
  const HostTensor& buffer() const { return parameters()[0]->buffer; }
};

TEST(Rotary, FrequenciesEqualAnIndependentFormula) {
  for (const formats::RopeConfig& rope : configs()) {
    for (const int64_t head_size : {16, 64, 96, 128}) {
      const std::vector<float> got = RotaryEmbedding::inverse_frequencies(rope, head_size);
      ASSERT_EQ(std::ssize(got), head_size / 2);
      for (int64_t i = 0; i < head_size / 2; ++i) {
        const double want = expected_frequency(rope, head_size, i);
        // The rounded exponent counts ln(theta) times, and in the blended band the frequency up to |factor| times.
        EXPECT_NEAR(got[i], want, (rope.type == "llama3" || rope.type == "yarn" ? 4e-6 : 1e-6) * want)
            << rope.type << " " << head_size << " " << i;
      }
    }
  }
}

// A frequency off by 1e-7 of itself rotates by 1e-3 more at position 10,000: the models were trained with transformers'
// fp32 ones, bit for bit, not with the formula. Its power function may differ from ours by one unit in the last place.
TEST(Rotary, FrequenciesAreThoseOfTransformers) {
  std::ifstream file(SPYRE_GOLDEN_DATA "/rope_frequencies.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 20u);
  int all = 0, equal = 0;
  for (const nlohmann::json& entry : golden) {
    const nlohmann::json& keys = entry["rope"];
    const formats::RopeConfig rope{.theta = keys["rope_theta"],
                                   .type = keys["rope_type"],
                                   .factor = keys.value("factor", 1.0),
                                   .low_freq_factor = keys.value("low_freq_factor", 1.0),
                                   .high_freq_factor = keys.value("high_freq_factor", 4.0),
                                   .original_max_position = keys.value("original_max_position_embeddings", int64_t{0})};
    const std::vector<float> got = RotaryEmbedding::inverse_frequencies(rope, entry["head_size"]);
    ASSERT_EQ(got.size(), entry["bits"].size());
    for (size_t i = 0; i < got.size(); ++i) {
      const int bits = std::bit_cast<int>(got[i]), want = entry["bits"][i];
      EXPECT_LE(std::abs(bits - want), 2) << rope.type << " " << entry["head_size"] << " " << i;
      equal += bits == want;
      ++all;
    }
  }
  EXPECT_GE(equal, all - all / 50) << "of " << all;
}

TEST(Rotary, Llama3HasAllThreeRegimes) {
  const formats::RopeConfig rope = configs()[4];
  const std::vector<float> scaled = RotaryEmbedding::inverse_frequencies(rope, 64);
  const std::vector<float> plain = RotaryEmbedding::inverse_frequencies({.theta = rope.theta}, 64);
  int kept = 0, divided = 0, blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ratio = plain[i] / scaled[i];
    (ratio == 1 ? kept : std::abs(ratio - 32) < 1e-4 ? divided : blended) += 1;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(blended, 0);
}

TEST(Rotary, TableHoldsCosinesThenSines) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const formats::RopeConfig rope = configs()[3];
    const Table layer({.path = "r", .head_size = 64, .max_positions = 300, .rope = rope, .dtype = dtype});
    const double unit = dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    for (const int64_t p : {0, 1, 17, 299}) {
      for (int64_t i = 0; i < 32; ++i) {
        const double angle = static_cast<double>(p) * expected_frequency(rope, 64, i);
        const auto at = [&](int64_t column) {
          const int64_t index = p * 64 + column;
          if (dtype == DType::kF32) return layer.buffer().as<float>()[index];
          const uint16_t bits = layer.buffer().as<uint16_t>()[index];
          return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        };
        // The angle is a fp32 product of a fp32 frequency: off by up to 2^-22 of itself.
        const double tolerance = unit + angle * 0x1p-22;
        EXPECT_NEAR(at(i), std::cos(angle), tolerance) << p << " " << i;
        EXPECT_NEAR(at(32 + i), std::sin(angle), tolerance) << p << " " << i;
      }
    }
  }
}

TEST(Rotary, YarnsAttentionFactorScalesTheTable) {
  formats::RopeConfig rope = configs()[5];
  rope.attention_factor = 1.25;
  const Table layer({.path = "r", .head_size = 16, .max_positions = 10, .rope = rope});
  for (int64_t i = 0; i < 8; ++i) {
    const double angle = 9 * expected_frequency(rope, 16, i);
    EXPECT_NEAR(layer.buffer().as<float>()[9 * 16 + i], 1.25 * std::cos(angle), 2e-6) << i;
    EXPECT_NEAR(layer.buffer().as<float>()[9 * 16 + 8 + i], 1.25 * std::sin(angle), 2e-6) << i;
  }
}

TEST(Rotary, DivisorsOfAFileAreApplied) {
  std::vector<float> divisors(8);
  for (size_t i = 0; i < divisors.size(); ++i) divisors[i] = static_cast<float>(1 + i);
  const Table layer({.path = "r", .head_size = 16, .max_positions = 10, .frequency_divisors = divisors});
  for (int64_t i = 0; i < 8; ++i) {
    const double angle = 9 * expected_frequency({}, 16, i) / divisors[i];
    EXPECT_NEAR(layer.buffer().as<float>()[9 * 16 + i], std::cos(angle), 1e-6) << i;
  }
}

TEST(Rotary, UnknownScalingIsRefusedByName) {
  try {
    RotaryEmbedding::inverse_frequencies({.type = "dynamic"}, 64);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("'dynamic'"), std::string::npos);
  }
}

TEST(Rotary, OddHeadIsRefused) {
  EXPECT_THROW(Table({.path = "r", .head_size = 15, .max_positions = 10}), Error);
}

TEST(Rotary, AbsurdTableIsRefusedBeforeItIsMade) {
  try {
    const Table layer({.path = "r", .head_size = 1024, .max_positions = int64_t{1} << 24});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("16777216 positions"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace spyre::nn
