// Attention steps on teams of every size against the scalar definition: who computes a row, and which parts its keys
// are divided into, changes no bit.
#include "plugins/spyre/attention/host_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/vector_math.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/attention/metadata_builder.h"
#include "plugins/spyre/kernels/kv_pages.h"

namespace spyre::attention {
namespace {

using Words = std::vector<uint16_t>;

struct Shape {
  DType dtype = DType::kF16;
  DotOrder order = DotOrder::kSequential;
  int64_t kv_heads = 3, group = 3, d = 32;
  int64_t block_size = 64, window = 0;
};

struct Sequence {
  int64_t context = 0, query = 1;
  int64_t length() const { return context + query; }
};

// Sequences of random keys and values in shuffled blocks of one cache, and random queries.
class Batch {
 public:
  Batch(const Shape& shape, std::vector<Sequence> sequences)
      : shape_(shape), sequences_(std::move(sequences)), random_(static_cast<uint32_t>(sequences_.size())) {
    starts_.push_back(0);
    for (const Sequence& s : sequences_) {
      starts_.push_back(starts_.back() + static_cast<int32_t>(s.query));
      lengths_.push_back(static_cast<int32_t>(s.length()));
      max_blocks_ = std::max(max_blocks_, blocks_of(s));
      k_.push_back(random_words(s.length() * kv_row()));
      v_.push_back(random_words(s.length() * kv_row()));
    }
    q_ = random_words(starts_.back() * heads() * shape.d);
    table_.resize(sequences_.size() * static_cast<size_t>(max_blocks_));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random_);
  }

  int64_t heads() const { return shape_.kv_heads * shape_.group; }

  // The result of a team of |threads|; run twice over the same tables, as two layers would.
  Words run(int threads, int64_t* joins) const {
    device::SoftwareDevice device(
        {.features = CpuFeatures::detected(), .bf16_order = shape_.order, .threads = threads});
    const int64_t longest = max_blocks_ * shape_.block_size, rows = starts_.back();
    const Bucketer bucketer({.block_size = shape_.block_size,
                             .max_model_len = longest,
                             .max_num_batched_tokens = rows,
                             .max_num_seqs = std::ssize(sequences_)});
    MetadataBuilder builder(device, bucketer,
                            {.block_size = shape_.block_size,
                             .max_num_batched_tokens = rows,
                             .max_num_seqs = std::ssize(sequences_),
                             .max_model_len = longest,
                             .dtype = shape_.dtype,
                             .kv_heads = shape_.kv_heads,
                             .group = shape_.group,
                             .head_dim = shape_.d,
                             .window = shape_.window,
                             .card_tables = false});
    const StepTables& tables =
        builder.build({shape_.block_size, starts_, lengths_, table_, max_blocks_, /*causal=*/true});
    *joins = std::ssize(tables.joins);
    const device::DeviceTensor kv = pages(device);
    Words out;
    for (int layer = 0; layer < 2; ++layer) {
      out.assign(q_.size(), 0x1234);
      run_step(device, tables, kv.get(), out);
    }
    return out;
  }

  Words reference() const {
    Words out;
    const AttentionMath math{shape_.dtype, shape_.order, scale(), 0};
    std::vector<float> y(static_cast<size_t>(shape_.d));
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const std::vector<float> k = widen(k_[s]), v = widen(v_[s]);
      for (int64_t i = 0; i < sequences_[s].query; ++i) {
        const graph::KeyRange keys =
            graph::visible_keys(sequences_[s].context + i, sequences_[s].length(), true, shape_.window);
        for (int64_t h = 0; h < heads(); ++h) {
          const auto first = q_.begin() + ((starts_[s] + i) * heads() + h) * shape_.d;
          const std::vector<float> q = widen(Words(first, first + shape_.d));
          const int64_t head = h / shape_.group * shape_.d;
          attend_reference(math, q.data(), shape_.d, &k[static_cast<size_t>(head)], kv_row(),
                           &v[static_cast<size_t>(head)], kv_row(), keys.first, keys.last, y.data());
          for (float x : y) out.push_back(store_16bit(shape_.dtype, x));
        }
      }
    }
    return out;
  }

 private:
  int64_t kv_row() const { return shape_.kv_heads * shape_.d; }
  int64_t blocks_of(const Sequence& s) const { return (s.length() + shape_.block_size - 1) / shape_.block_size; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.d)); }

  Words random_words(int64_t n) {
    std::normal_distribution<float> normal;
    Words w(static_cast<size_t>(n));
    for (auto& x : w) x = store_16bit(shape_.dtype, normal(random_));
    return w;
  }
  std::vector<float> widen(const Words& words) const {
    std::vector<float> f(words.size());
    std::transform(words.begin(), words.end(), f.begin(), [&](uint16_t x) { return load_16bit(shape_.dtype, x); });
    return f;
  }

  device::DeviceTensor pages(device::SoftwareDevice& device) const {
    const device::TensorSpec spec = kv_spec(KvLayout::kTokenMajor, shape_.dtype, std::ssize(table_), shape_.block_size,
                                            device::Axis(shape_.kv_heads), device::Axis(shape_.d));
    const device::DeviceTensor kv = device.allocate_kv({&spec, 1}, std::ssize(table_), shape_.block_size).front();
    const kernels::KvPageLayout layout = page_layout(*kv, shape_.kv_heads, shape_.d);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t t = 0; t < sequences_[s].length(); ++t) {
        const int32_t block = table_[s * static_cast<size_t>(max_blocks_) + static_cast<size_t>(t / shape_.block_size)];
        for (int64_t h = 0; h < shape_.kv_heads; ++h) {
          const size_t at = static_cast<size_t>(t * kv_row() + h * shape_.d);
          layout.write(page(*kv, block), t % shape_.block_size, h, &k_[s][at], &v_[s][at]);
        }
      }
    }
    return kv;
  }

  void run_step(device::SoftwareDevice& device, const StepTables& tables, device::TensorStore* kv, Words& out) const {
    const auto rotated = [](const void* p) { return const_cast<std::byte*>(static_cast<const std::byte*>(p)); };
    AttentionStep step;
    step.kernels = &kernels::select_attention_kernels(CpuFeatures::detected(), shape_.dtype, shape_.order);
    step.q = {.place = {0, 0}, .token_stride = heads() * shape_.d, .head_stride = shape_.d};
    step.out = {.place = {1, 0}, .token_stride = heads() * shape_.d, .head_stride = shape_.d};
    step.state = {2, 0};
    step.heads = heads();
    step.kv_heads = shape_.kv_heads;
    step.head_dim = shape_.d;
    step.scale = scale();
    step.window = shape_.window;
    const size_t scratch_bytes = (step.scratch_bytes() + 63) / 64 * 64;
    const auto threads = static_cast<size_t>(device.team().size());
    device::HostBuffer scratch(scratch_bytes * threads);
    const std::vector<std::byte*> slots = {rotated(q_.data()), rotated(out.data()), nullptr};
    const std::vector<device::TensorStore*> stores = {nullptr, nullptr, kv};
    device.team().run([&](int thread, int count) {
      device::HostFrame frame;
      frame.rows = starts_.back();
      frame.slots = slots;
      frame.stores = stores;
      frame.tables = &tables;
      frame.scratch = scratch.data() + static_cast<size_t>(thread) * scratch_bytes;
      step.run(frame, thread, count);
    });
  }

  Shape shape_;
  std::vector<Sequence> sequences_;
  std::mt19937 random_;
  std::vector<int32_t> starts_, lengths_, table_;
  int64_t max_blocks_ = 0;
  std::vector<Words> k_, v_;  // [sequence][token][head][d]
  Words q_;
};

// |divided|: whether a team of two divides somebody's keys.
void expect_reference(const Shape& shape, const std::vector<Sequence>& sequences, bool divided) {
  ScopedFlushDenormals flush;
  const Batch batch(shape, sequences);
  const Words want = batch.reference();
  for (int threads : {1, 2, 3, 5}) {
    int64_t joins = 0;
    ASSERT_EQ(batch.run(threads, &joins), want) << threads << " threads";
    EXPECT_TRUE(threads > 2 || (joins > 0) == (divided && threads == 2))
        << joins << " joins of " << threads << " threads";
  }
}

TEST(HostAttention, ALongSequenceIsDividedOverThreads) {
  expect_reference({}, {{2047, 1}}, true);
  expect_reference({.dtype = DType::kBF16, .order = DotOrder::kPair}, {{1700, 1}}, true);
  expect_reference({.dtype = DType::kBF16, .order = DotOrder::kTile, .block_size = 128}, {{1599, 1}}, true);
}

TEST(HostAttention, OneKeyHeadOverManyRanges) {
  expect_reference({.kv_heads = 1, .group = 4, .d = 64}, {{5000, 1}}, true);
  expect_reference({.kv_heads = 1, .group = 1, .d = 80}, {{3000, 2}}, true);
}

TEST(HostAttention, ShortSequencesStayWhole) {
  expect_reference({}, {{100, 1}, {30, 1}, {0, 1}}, false);
  expect_reference({}, {{0, 150}}, false);
}

TEST(HostAttention, LongAndShortDecodeTogether) {
  expect_reference({}, {{10, 1}, {1500, 1}, {40, 1}, {2600, 1}, {300, 1}}, true);
  expect_reference({.kv_heads = 1, .group = 3}, {{2100, 1}, {1200, 1}}, true);
}

// The positions of a chunk are divided, its keys are not.
TEST(HostAttention, ChunksBesideDecodes) {
  expect_reference({.d = 16}, {{700, 37}, {90, 1}}, false);
  expect_reference({.kv_heads = 1, .group = 9, .d = 16}, {{600, 1}, {64, 30}, {5000, 1}}, true);
  expect_reference({.kv_heads = 2, .group = 71, .d = 16}, {{600, 3}}, false);
}

TEST(HostAttention, AWindowCutsTheRangesInFront) {
  expect_reference({.window = 300}, {{2000, 1}, {1000, 20}}, false);
  expect_reference({.kv_heads = 1, .window = 1100}, {{2900, 1}}, true);
}

}  // namespace
}  // namespace spyre::attention
