// A llama-like block with its KV cache, over several steps and sequences with shuffled blocks: checked mode, the host
// plan and the exact interpreter give equal bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/text.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/attention/metadata_builder.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::device {
namespace {

struct Shape {
  int64_t heads = 9, kv_heads = 3, d = 64, hidden = 96, mlp = 100;
  DType dtype = DType::kF16;
  DotOrder order = DotOrder::kPair;
  int64_t block_size = 64, window = 0;
  double softcap = 0;
  bool matrix_rotation = true;  // rotate_2x2, else rotary
  int64_t sequences = 2;        // at most
  attention::KvLayout layout = attention::KvLayout::kTokenMajor;
};

constexpr int64_t kBucket = 24, kBlocks = 40, kMaxBlocks = 12;

std::string block_text(const Shape& s) {
  const int64_t q = s.heads * s.d, kv = s.kv_heads * s.d;
  const std::string rotation = s.matrix_rotation ? fmt::format("2,2,{}", s.d / 2) : fmt::format("{}", s.d);
  return fmt::format(R"(graph block {{
    input %x : {t}[@{T},{hid}]
    input %residual : {t}[@{T},{hid}]
    input %rot : {t}[@{T},{rot}]
    input %slots : i32[@{T}]
    input %batch : batch
    param %n1 : {t}[{hid}]
    param %n2 : {t}[{hid}]
    param %wqkv : {t}[{hid},{qkv}]
    param %bqkv : {t}[{qkv}]
    param %wo : {t}[{q},{hid}]
    param %wgu : {t}[{hid},{gu}]
    param %wd : {t}[{mlp},{hid}]
    state %kv : kv {t}[{K},{D}]
    %r1 = add(%x, %residual)
    %h1 = rms_norm(%r1, %n1) {{eps=1e-05}}
    %qkv0 = matmul(%h1, %wqkv)
    %qkv = add(%qkv0, %bqkv)
    %q0 = slice(%qkv) {{axis=1, start=0, size={q}}}
    %k0 = slice(%qkv) {{axis=1, start={q}, size={kvs}}}
    %v0 = slice(%qkv) {{axis=1, start={qk}, size={kvs}}}
    %q1 = reshape(%q0) {{shape=[-1,{H},{D}]}}
    %k1 = reshape(%k0) {{shape=[-1,{K},{D}]}}
    %v1 = reshape(%v0) {{shape=[-1,{K},{D}]}}
    %q2 = {rotate}(%q1, %rot)
    %k2 = {rotate}(%k1, %rot)
    %kv1 = kv_store(%kv, %k2, %v1, %slots)
    %a = attention(%q2, %kv1, %batch) {{scale=0.125, softcap={cap}, window={win}}}
    %a1 = reshape(%a) {{shape=[-1,{q}]}}
    %o = matmul(%a1, %wo)
    %r2 = add(%o, %r1)
    %h2 = rms_norm(%r2, %n2) {{eps=1e-05}}
    %gu = matmul(%h2, %wgu)
    %g = slice(%gu) {{axis=1, start=0, size={mlp}}}
    %u = slice(%gu) {{axis=1, start={mlp}, size={mlp}}}
    %sg = silu(%g)
    %m = mul(%sg, %u)
    %y = matmul(%m, %wd)
    return %y, %r2
  }})",
                     fmt::arg("t", to_string(s.dtype)), fmt::arg("T", kBucket), fmt::arg("hid", s.hidden),
                     fmt::arg("rot", rotation), fmt::arg("qkv", q + 2 * kv), fmt::arg("q", q), fmt::arg("kvs", kv),
                     fmt::arg("qk", q + kv), fmt::arg("gu", 2 * s.mlp), fmt::arg("mlp", s.mlp),
                     fmt::arg("K", s.kv_heads), fmt::arg("D", s.d), fmt::arg("H", s.heads),
                     fmt::arg("rotate", s.matrix_rotation ? "rotate_2x2" : "rotary"), fmt::arg("cap", s.softcap),
                     fmt::arg("win", s.window));
}

// A step: for each sequence (tokens before, tokens now).
using Step = std::vector<std::pair<int64_t, int64_t>>;

class Runner {
 public:
  Runner(const Shape& shape, ExecutionMode mode, std::shared_ptr<const Program> program)
      : shape_(shape),
        program_(std::move(program)),
        device_({.mode = mode, .features = CpuFeatures::detected(), .bf16_order = shape.order, .threads = 1}),
        bucketer_({.block_size = shape.block_size,
                   .max_model_len = kMaxBlocks * shape.block_size,
                   .max_num_batched_tokens = kBucket,
                   .max_num_seqs = has_batched_decode(shape.layout) ? shape.sequences : 0}),
        builder_(device_, bucketer_,
                 {.block_size = shape.block_size,
                  .max_num_batched_tokens = kBucket,
                  .max_num_seqs = shape.sequences,
                  .max_model_len = kMaxBlocks * shape.block_size,
                  .dtype = shape.dtype,
                  .kv_heads = shape.kv_heads,
                  .window = shape.window,
                  .kv_layout = shape.layout}) {
    const TensorSpec& state = program_->state_specs[0];
    const TensorSpec cache =
        attention::kv_spec(shape.layout, state.dtype, kBlocks, shape.block_size, state.axes[0], state.axes[1]);
    kv_ = device_.allocate_kv({&cache, 1}, kBlocks, shape.block_size).front();
  }

  void bind(const graph::Bindings& bindings) {
    launch_ = {.program = program_.get()};
    for (size_t i = 0; i < bindings.parameters.size(); ++i) {
      launch_.parameters.push_back(
          device_.allocate(program_->parameter_specs[i], "test", program_->parameter_forms[i]));
      device_.upload(launch_.parameters.back(), testing::to_host_tensor(bindings.parameters[i]), "test");
    }
    launch_.states = {kv_};
    for (size_t i = 0; i < 4; ++i) launch_.inputs.push_back(device_.allocate(program_->input_specs[i], "test"));
    launch_.inputs.push_back(nullptr);
    for (const TensorSpec& spec : program_->output_specs) launch_.outputs.push_back(device_.allocate(spec, "test"));
  }

  std::vector<std::vector<float>> run(const graph::Bindings& bindings, int64_t live) {
    for (size_t i = 0; i < 4; ++i) {
      device_.upload(launch_.inputs[i], testing::to_host_tensor(bindings.inputs[i]), "test", live);
    }
    const attention::StepTables& tables = builder_.build(*bindings.batch, bindings.inputs[3].ints().first(live));
    device_.run(launch_, live, &tables);
    std::vector<std::vector<float>> results;
    for (const DeviceTensor& output : launch_.outputs) {
      std::vector<float> values(static_cast<size_t>(live * shape_.hidden));
      device_.download(output, values.data(), "test", live);
      results.push_back(std::move(values));
    }
    return results;
  }

 private:
  const Shape shape_;
  std::shared_ptr<const Program> program_;
  SoftwareDevice device_;
  attention::Bucketer bucketer_;
  attention::MetadataBuilder builder_;
  DeviceTensor kv_;
  Launch launch_;
};

class Block {
 public:
  explicit Block(const Shape& shape, bool with_host = true) : shape_(shape), random_(7) {
    graph_ = graph::parse(block_text(shape));
    compiler::Compiler compiler({.features = CpuFeatures::detected(), .bf16_order = shape.order, .threads = 1});
    program_ = compiler.compile(graph_);
    pages_ = graph::KvPages::allocate(graph_.type(graph_.states[0]), kBlocks, shape.block_size);
    std::fill(pages_.k.begin(), pages_.k.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(pages_.v.begin(), pages_.v.end(), std::numeric_limits<float>::quiet_NaN());
    for (graph::ValueId p : graph_.parameters) bindings_.parameters.push_back(values(graph_.type(p), kBucket));
    bindings_.states = {&pages_};
    table_.resize(kBlocks);
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random_);
    max_blocks_ = std::min(kMaxBlocks, kBlocks / shape.sequences);
    table_.resize(shape.sequences * max_blocks_);
    checked_ = std::make_unique<Runner>(shape, ExecutionMode::kChecked, program_);
    checked_->bind(bindings_);
    if (!with_host) return;
    host_ = std::make_unique<Runner>(shape, ExecutionMode::kHost, program_);
    host_->bind(bindings_);
  }

  void step(const Step& step) {
    std::vector<int32_t> starts{0}, lengths, slots;
    for (size_t i = 0; i < step.size(); ++i) {
      const auto [before, now] = step[i];
      for (int64_t t = before; t < before + now; ++t) {
        slots.push_back(static_cast<int32_t>(table_[i * max_blocks_ + t / shape_.block_size] * shape_.block_size +
                                             t % shape_.block_size));
      }
      starts.push_back(static_cast<int32_t>(slots.size()));
      lengths.push_back(static_cast<int32_t>(before + now));
    }
    const auto live = static_cast<int64_t>(slots.size());
    slots.resize(kBucket, -1);
    const graph::AttentionBatch batch{shape_.block_size, starts, lengths, table_, max_blocks_, true};
    bindings_.batch = &batch;
    bindings_.inputs.clear();
    for (int i = 0; i < 3; ++i) bindings_.inputs.push_back(values(graph_.type(graph_.inputs[i]), live));
    bindings_.inputs.push_back(graph::Array::of_ints(graph_.type(graph_.inputs[3]), slots));
    bindings_.inputs.emplace_back();
    const auto expected = graph::Interpreter(graph::EvalMode::kExact, shape_.order).run(graph_, bindings_);
    const auto checked = checked_->run(bindings_, live);
    const auto host = host_ ? host_->run(bindings_, live) : checked;
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::span<const float> rows = expected[i].floats().first(live * shape_.hidden);
      ASSERT_FALSE(std::any_of(rows.begin(), rows.end(), [](float x) { return std::isnan(x); }));
      size_t where = 0;
      EXPECT_TRUE(testing::equal_bits(checked[i], rows, &where))
          << "checked, output " << i << " element " << where << ": " << checked[i][where] << ", not " << rows[where];
      EXPECT_TRUE(testing::equal_bits(host[i], rows, &where))
          << "host, output " << i << " element " << where << ": " << host[i][where] << ", not " << rows[where];
    }
  }

  const Program& program() const { return *program_; }

 private:
  // Rows behind the live ones are NaN.
  graph::Array values(const graph::Type& type, int64_t live) {
    std::vector<float> data(type.elements(), std::numeric_limits<float>::quiet_NaN());
    const bool rows = type.rows_axis() == 0;
    const int64_t filled = rows ? type.elements() / type.extent(0) * live : type.elements();
    const double scale = type.rank() == 2 && !rows ? 1.0 / std::sqrt(static_cast<double>(type.extent(0))) : 1.0;
    std::uniform_real_distribution<float> uniform(-1.5, 1.5);
    for (int64_t i = 0; i < filled; ++i) {
      data[i] = round_to(type.dtype, static_cast<float>(scale * uniform(random_)));
    }
    return graph::Array::of(type, std::move(data));
  }

  Shape shape_;
  std::mt19937 random_;
  graph::Graph graph_;
  std::shared_ptr<const Program> program_;
  graph::KvPages pages_;
  graph::Bindings bindings_;
  std::vector<int32_t> table_;
  int64_t max_blocks_ = 0;  // of a sequence
  std::unique_ptr<Runner> checked_, host_;
};

// Two sequences grow together: the first by chunks, the second token by token.
void prefill_and_decode(const Shape& shape, int64_t tokens = 150) {
  Block block(shape);
  int64_t first = 0, second = 0;
  while (first < tokens) {
    block.step({{first, 17}, {second, 2}});
    first += 17;
    second += 2;
    block.step({{first, 1}, {second, 1}});
    ++first;
    ++second;
  }
}

TEST(CheckedAttention, GroupedHeads) {
  prefill_and_decode({});
}
TEST(CheckedAttention, GroupedHeadsBf16) {
  prefill_and_decode({.dtype = DType::kBF16, .order = DotOrder::kPair});
  prefill_and_decode({.dtype = DType::kBF16, .order = DotOrder::kTile}, 70);
}
TEST(CheckedAttention, EveryHeadItsOwnKeys) {
  prefill_and_decode({.heads = 4, .kv_heads = 4, .d = 32, .matrix_rotation = false});
}
TEST(CheckedAttention, OneKeyHead) {
  prefill_and_decode({.heads = 4, .kv_heads = 1, .d = 128, .hidden = 64, .block_size = 128});
}
TEST(CheckedAttention, OddHeadSize) {
  prefill_and_decode({.heads = 2, .kv_heads = 1, .d = 80}, 70);
}
TEST(CheckedAttention, WindowAndSoftCap) {
  prefill_and_decode({.heads = 2, .kv_heads = 1, .window = 40, .softcap = 5}, 200);
}
// More than one range of 512 keys.
TEST(CheckedAttention, SeveralRanges) {
  prefill_and_decode({.heads = 2, .kv_heads = 1, .d = 32, .hidden = 64, .mlp = 64}, 600);
}

// Sequences of all lengths that decode together on the grid of (blocks, lanes), between steps in which one of them has
// a chunk, and so each a program of its own.
void decode_together(Shape shape, int64_t sequences, int64_t chunks) {
  shape.sequences = sequences;
  Block block(shape);
  std::vector<int64_t> lengths(static_cast<size_t>(sequences), 0);
  const auto step = [&](int64_t longest, int64_t chunk) {
    Step now;
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t tokens = i == longest ? chunk : 1;
      now.emplace_back(lengths[i], tokens);
      lengths[i] += tokens;
    }
    block.step(now);
  };
  for (int64_t i = 0; i < chunks; ++i) {
    step(i * i % sequences, 13);
    step(0, 1);
  }
}

TEST(CheckedAttention, BatchedDecode) {
  decode_together({}, 4, 30);
  decode_together({.dtype = DType::kBF16, .order = DotOrder::kTile}, 7, 16);
}
TEST(CheckedAttention, BatchedDecodeWithAWindowAndASoftCap) {
  decode_together({.heads = 2, .kv_heads = 1, .d = 32, .window = 40, .softcap = 5}, 5, 40);
}

// The card's pages lie head by head, and every KV head is stored through an index of its own; bits are the same.
TEST(CheckedAttention, HeadMajorPages) {
  using attention::KvLayout;
  prefill_and_decode({.layout = KvLayout::kHeadMajor});
  prefill_and_decode({.dtype = DType::kBF16, .block_size = 128, .layout = KvLayout::kHeadMajor});
  prefill_and_decode({.heads = 4, .kv_heads = 4, .d = 32, .matrix_rotation = false, .layout = KvLayout::kHeadMajor});
  prefill_and_decode({.heads = 2, .kv_heads = 1, .window = 40, .softcap = 5, .layout = KvLayout::kHeadMajor}, 200);
  decode_together({.layout = KvLayout::kHeadMajor}, 5, 12);  // one by one: this layout has no batched decode
}

TEST(Rules, L14_BlockSize) {
  Block whole({.block_size = 64});
  whole.step({{0, 5}});
  Block part({.block_size = 32}, false);
  try {
    part.step({{0, 5}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation);
    EXPECT_EQ(std::string(error.what()).substr(0, 4), "L-14") << error.what();
  }
}

TEST(CheckedAttention, ThePlanOfABlock) {
  const Block block({});
  const CardPlan& card = block.program().card;
  int64_t matmuls = 0, restickified = 0, views = 0;
  for (const DeviceOp& op : card.ops) {
    matmuls += op.name == "batchmatmul";
    restickified += op.name == "restickify";
    int64_t cores = 1;
    for (int64_t split : op.splits) cores *= split;
    EXPECT_LE(cores, 32) << op.name;
    EXPECT_GE(op.estimated_ns, 0);
  }
  for (const CardBuffer& b : card.buffers) views += b.view;
  EXPECT_EQ(matmuls, 4);
  EXPECT_EQ(restickified, 0);  // nothing in a block changes its layout
  EXPECT_EQ(views, 9);         // 3 parts and 3 splits of qkv, heads merged again, 2 parts of gate_up
  EXPECT_GT(card.estimated_ns, 0);
  EXPECT_EQ(card.restickified_bytes, 0);
}

}  // namespace
}  // namespace spyre::device
