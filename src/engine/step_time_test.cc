#include "engine/step_time.h"

#include <gtest/gtest.h>

#include <random>

namespace spyre::engine {
namespace {

struct Machine {
  double step = 3e-3, token = 4e-4, row = 2e-4, context = 1e-6, pair = 5e-8;
  double seconds(const StepShape& s) const {
    return step + token * static_cast<double>(s.prefill_tokens) + row * static_cast<double>(s.decode_rows) +
           context * s.decode_context + pair * s.prefill_pairs;
  }
};

StepShape random_shape(std::mt19937& random, bool decodes_only) {
  StepShape s;
  for (size_t n = random() % 20; n > 0; --n) s.add_decode(1 + static_cast<int64_t>(random() % 2000));
  if (!decodes_only || s.decode_rows == 0) {
    s.add_prefill(static_cast<int64_t>(random() % 2000), 1 + static_cast<int64_t>(random() % 300));
  }
  return s;
}

TEST(StepTime, LearnsTheCostsOfAMachine) {
  std::mt19937 random(3);
  const Machine machine;
  StepTimeModel model;
  for (int i = 0; i < 400; ++i) {
    const StepShape s = random_shape(random, i % 3 != 0);
    model.observe(s, machine.seconds(s) * (1 + 0.04 * (static_cast<double>(random() % 1000) / 500 - 1)));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape s = random_shape(random, false);
    EXPECT_NEAR(model.predict(s) / model.margin() / machine.seconds(s), 1, 0.08)
        << s.prefill_tokens << " " << s.decode_rows;
  }
  EXPECT_LT(model.margin(), 1.15);
}

// One step in twenty takes ten times as long: somebody else had the machine.
TEST(StepTime, IsNotMovedByOutliers) {
  std::mt19937 random(4);
  const Machine machine;
  StepTimeModel model;
  for (int i = 0; i < 600; ++i) {
    const StepShape s = random_shape(random, i % 2 != 0);
    model.observe(s, machine.seconds(s) * (i % 20 == 19 ? 10 : 1));
  }
  const StepShape s = random_shape(random, false);
  EXPECT_NEAR(model.predict(s) / model.margin() / machine.seconds(s), 1, 0.25);
}

TEST(StepTime, FollowsAMachineThatBecomesSlower) {
  std::mt19937 random(5);
  Machine machine;
  StepTimeModel model;
  for (int i = 0; i < 1200; ++i) {
    if (i == 300) machine = {.step = 6e-3, .token = 8e-4, .row = 4e-4, .context = 2e-6, .pair = 1e-7};
    const StepShape s = random_shape(random, i % 2 != 0);
    model.observe(s, machine.seconds(s));
  }
  const StepShape s = random_shape(random, false);
  EXPECT_NEAR(model.predict(s) / model.margin() / machine.seconds(s), 1, 0.1);
}

// An hour of decodes leaves what is known about prompts as it is.
TEST(StepTime, DecodesDoNotWipeOutPrompts) {
  std::mt19937 random(6);
  const Machine machine;
  StepTimeModel model;
  for (int i = 0; i < 200; ++i) {
    const StepShape s = random_shape(random, false);
    model.observe(s, machine.seconds(s));
  }
  StepShape prompt;
  prompt.add_prefill(0, 200);
  const double before = model.predict(prompt) / model.margin();
  for (int i = 0; i < 100000; ++i) {
    StepShape s;
    for (size_t n = 1 + random() % 8; n > 0; --n) s.add_decode(1 + static_cast<int64_t>(random() % 500));
    model.observe(s, machine.seconds(s));
  }
  EXPECT_NEAR(model.predict(prompt) / model.margin() / before, 1, 0.1);
}

TEST(StepTime, TheLargestChunkIsTheLargest) {
  std::mt19937 random(7);
  const Machine machine;
  StepTimeModel model;
  EXPECT_EQ(model.largest_chunk({}, 0, 512, 0.001), 512);  // knows nothing yet
  for (int i = 0; i < 300; ++i) {
    const StepShape s = random_shape(random, i % 2 != 0);
    model.observe(s, machine.seconds(s));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape beside = random_shape(random, true);
    const auto start = static_cast<int64_t>(random() % 3000);
    const double limit = 0.02 + 0.1 * static_cast<double>(random() % 100) / 100;
    const int64_t chunk = model.largest_chunk(beside, start, 512, limit);
    StepShape with = beside, more = beside;
    with.add_prefill(start, chunk);
    more.add_prefill(start, chunk + 1);
    EXPECT_TRUE(chunk == 0 || model.predict(with) <= limit);
    EXPECT_TRUE(chunk == 512 || model.predict(more) > limit);
  }
}

}  // namespace
}  // namespace spyre::engine
