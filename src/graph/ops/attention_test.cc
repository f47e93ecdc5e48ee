// kv_store.cc, attention.cc
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/vector_math.h"
#include "graph/ops/op_testing.h"

namespace spyre::graph {
namespace {

using testing::floats;
using ::testing::HasSubstr;
using testing::violation;

const float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(KvStore, C1_State) {
  SPYRE_EXPECT_VIOLATION("kv_store C1", violation("kv_store", {"f16[2,8]", "f16[4,2,8]", "f16[4,2,8]", "i32[4]"}));
}
TEST(KvStore, C2_Dtype) {
  SPYRE_EXPECT_VIOLATION("kv_store C2", violation("kv_store", {"kv f16[2,8]", "f16[4,2,8]", "bf16[4,2,8]", "i32[4]"}));
}
TEST(KvStore, C3_Shapes) {
  SPYRE_EXPECT_VIOLATION("kv_store C3", violation("kv_store", {"kv f16[2,8]", "f16[4,1,8]", "f16[4,1,8]", "i32[4]"}));
  SPYRE_EXPECT_VIOLATION("kv_store C3", violation("kv_store", {"kv f16[2,8]", "f16[4,2,8]", "f16[3,2,8]", "i32[4]"}));
}
TEST(KvStore, C4_Slots) {
  SPYRE_EXPECT_VIOLATION("kv_store C4", violation("kv_store", {"kv f16[2,8]", "f16[4,2,8]", "f16[4,2,8]", "f16[4]"}));
  SPYRE_EXPECT_VIOLATION("kv_store C4", violation("kv_store", {"kv f16[2,8]", "f16[@4,2,8]", "f16[@4,2,8]", "i32[4]"}));
}

TEST(Attention, C1_State) {
  SPYRE_EXPECT_VIOLATION("attention C1", violation("attention", {"f16[4,2,8]", "f16[2,8]", "batch"}, "{scale=1}"));
}
TEST(Attention, C2_Dtype) {
  SPYRE_EXPECT_VIOLATION("attention C2", violation("attention", {"bf16[4,2,8]", "kv f16[2,8]", "batch"}, "{scale=1}"));
}
TEST(Attention, C3_Shapes) {
  SPYRE_EXPECT_VIOLATION("attention C3", violation("attention", {"f16[4,2,4]", "kv f16[2,8]", "batch"}, "{scale=1}"));
  SPYRE_EXPECT_VIOLATION("attention C3", violation("attention", {"f16[4,@2,8]", "kv f16[2,8]", "batch"}, "{scale=1}"));
}
TEST(Attention, C4_Heads) {
  SPYRE_EXPECT_VIOLATION("attention C4", violation("attention", {"f16[4,3,8]", "kv f16[2,8]", "batch"}, "{scale=1}"));
}
TEST(Attention, C5_Batch) {
  SPYRE_EXPECT_VIOLATION("attention C5", violation("attention", {"f16[4,2,8]", "kv f16[2,8]", "f16[4]"}, "{scale=1}"));
}
TEST(Attention, C6_Attributes) {
  const auto with = [](std::string_view attributes) {
    return violation("attention", {"f16[4,2,8]", "kv f16[2,8]", "batch"}, attributes);
  };
  SPYRE_EXPECT_VIOLATION("attention C6", with("{scale=0}"));
  SPYRE_EXPECT_VIOLATION("attention C6", with("{scale=1, softcap=-1}"));
  SPYRE_EXPECT_VIOLATION("attention C6", with("{scale=1, window=-1}"));
}

// A cache of blocks of four tokens, K = 2 kv heads of 6, H = 4 query heads. Two sequences share the pool in shuffled
// blocks; everything that nobody stored is NaN.
constexpr int64_t kKvHeads = 2, kHeads = 4, kD = 6, kBlock = 4, kBlocks = 64;

struct Setting {
  bool causal = true;
  float softcap = 0;
  int64_t window = 0;
};

struct Step {
  std::vector<int32_t> query_start = {0}, seq_lens, table;
  std::vector<int32_t> slots;
  AttentionBatch batch(bool causal) const { return {kBlock, query_start, seq_lens, table, kBlocks / 2, causal}; }
  // Rows of a sequence that had |before| tokens and now gets |rows| more. Its block j is 2 * (31 - j) + index.
  void add(int64_t before, int64_t rows) {
    const int index = static_cast<int>(seq_lens.size());
    query_start.push_back(query_start.back() + static_cast<int32_t>(rows));
    seq_lens.push_back(static_cast<int32_t>(before + rows));
    const auto block = [&](int64_t j) { return static_cast<int32_t>(2 * (kBlocks / 2 - 1 - j) + index); };
    for (int64_t j = 0; j < kBlocks / 2; ++j) table.push_back(block(j));
    for (int64_t t = before; t < before + rows; ++t)
      slots.push_back(static_cast<int32_t>(block(t / kBlock) * kBlock + t % kBlock));
  }
};

Array run_step(const Step& step, const Setting& setting, KvPages& pages, const std::vector<float>& q,
               const std::vector<float>& k, const std::vector<float>& v, int64_t padding, EvalMode mode,
               DotOrder order) {
  const auto tokens = static_cast<int64_t>(step.slots.size()) + padding;
  const std::string dtype(to_string(pages.type.dtype));
  const Graph graph = parse(fmt::format(R"(graph g {{
    input %q : {0}[@{1},{2},{4}]
    input %k : {0}[@{1},{3},{4}]
    input %v : {0}[@{1},{3},{4}]
    input %slots : i32[@{1}]
    input %batch : batch
    state %kv : kv {0}[{3},{4}]
    %kv1 = kv_store(%kv, %k, %v, %slots)
    %y = attention(%q, %kv1, %batch) {{scale=0.4, softcap={5}, window={6}}}
    return %y
  }})",
                                        dtype, tokens, kHeads, kKvHeads, kD, setting.softcap, setting.window));
  const auto array = [&](int input, std::vector<float> values) {
    const Type& type = graph.type(graph.inputs[input]);
    values.resize(type.elements(), kNaN);  // padding rows
    return Array::of(type, std::move(values));
  };
  std::vector<int32_t> slots = step.slots;
  slots.resize(tokens, -1);
  const AttentionBatch batch = step.batch(setting.causal);
  Bindings bindings;
  bindings.inputs = {array(0, q), array(1, k), array(2, v), Array::of_ints(graph.type(graph.inputs[3]), slots),
                     Array()};
  bindings.states = {&pages};
  bindings.batch = &batch;
  return Interpreter(mode, order).run(graph, bindings)[0];
}

std::vector<float> random_values(DType dtype, int64_t count, std::mt19937& random) {
  std::vector<float> out(count);
  for (float& x : out) x = round_to(dtype, std::uniform_real_distribution<float>(-2, 2)(random));
  return out;
}

KvPages poisoned(DType dtype) {
  KvPages pages = KvPages::allocate(Type::kv_cache(dtype, kKvHeads, kD), kBlocks, kBlock);
  std::fill(pages.k.begin(), pages.k.end(), kNaN);
  std::fill(pages.v.begin(), pages.v.end(), kNaN);
  return pages;
}

// Softmax attention of query row |row| in double precision: keys are rows 0 .. count of one sequence.
double plain_attention(const Setting& setting, const std::vector<float>& q, const std::vector<float>& k,
                       const std::vector<float>& v, int64_t row, int64_t count, int64_t head, int64_t lane) {
  std::vector<double> weights(count, 0);
  double total = 0, result = 0;
  const int64_t kv_head = head / (kHeads / kKvHeads);
  for (int64_t j = 0; j < count; ++j) {
    if (setting.causal && j > row) continue;
    if (setting.window > 0 && std::abs(j - row) >= setting.window) continue;
    double score = 0;
    for (int64_t i = 0; i < kD; ++i)
      score += static_cast<double>(q[(row * kHeads + head) * kD + i]) * k[(j * kKvHeads + kv_head) * kD + i];
    score *= 0.4;
    if (setting.softcap > 0) score = setting.softcap * std::tanh(score / setting.softcap);
    weights[j] = std::exp(score);
    total += weights[j];
  }
  for (int64_t j = 0; j < count; ++j) result += weights[j] / total * v[(j * kKvHeads + kv_head) * kD + lane];
  return result;
}

TEST(Attention, EqualsPlainSoftmax) {
  for (const Setting& setting :
       {Setting{}, Setting{true, 3.0f, 0}, Setting{true, 0, 5}, Setting{false, 0, 0}, Setting{false, 0, 3}}) {
    for (const auto& [mode, tolerance] : {std::pair(EvalMode::kFp32, 3e-6), std::pair(EvalMode::kExact, 4e-3)}) {
      std::mt19937 random(5);
      KvPages pages = poisoned(DType::kF16);
      constexpr int64_t kTokens = 100;
      const std::vector<float> q = random_values(DType::kF16, kTokens * kHeads * kD, random),
                               k = random_values(DType::kF16, kTokens * kKvHeads * kD, random),
                               v = random_values(DType::kF16, kTokens * kKvHeads * kD, random);
      Step step;
      step.add(0, kTokens);
      const Array y = run_step(step, setting, pages, q, k, v, 3, mode, DotOrder::kPair);
      for (int64_t i = 0; i < kTokens * kHeads * kD; ++i) {
        const double expected = plain_attention(setting, q, k, v, i / kD / kHeads, kTokens, i / kD % kHeads, i % kD);
        ASSERT_NEAR(y.floats()[i], expected, tolerance) << "element " << i;
      }
      for (int64_t i = kTokens * kHeads * kD; i < y.elements(); ++i) ASSERT_EQ(y.floats()[i], 0) << "padding row";
    }
  }
}

// Two sequences in one step, one of them in chunks, must have the bits they have alone and whole.
TEST(Attention, BatchingAndChunkingChangeNoBit) {
  const std::pair<DType, DotOrder> kinds[] = {
      {DType::kF16, DotOrder::kSequential}, {DType::kBF16, DotOrder::kPair}, {DType::kBF16, DotOrder::kTile}};
  for (const auto& [dtype, order] : kinds) {
    std::mt19937 random(6);
    const auto tokens = [&](int64_t count, int64_t heads) { return random_values(dtype, count * heads * kD, random); };
    const std::vector<float> q = tokens(90, kHeads), k = tokens(90, kKvHeads), v = tokens(90, kKvHeads);
    const std::vector<float> other_q = tokens(30, kHeads), other_k = tokens(30, kKvHeads),
                             other_v = tokens(30, kKvHeads);
    const auto part = [](const std::vector<float>& x, int64_t heads, int64_t from, int64_t to) {
      return std::vector<float>(x.begin() + from * heads * kD, x.begin() + to * heads * kD);
    };
    const auto joined = [](std::vector<float> a, const std::vector<float>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };

    KvPages alone = poisoned(dtype);
    Step whole;
    whole.add(0, 90);
    const std::vector<float> expected = floats(run_step(whole, {}, alone, q, k, v, 0, EvalMode::kExact, order));

    KvPages shared = poisoned(dtype);
    std::vector<float> got;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 37}, {37, 38}, {38, 90}}) {
      Step step;
      step.add(from, to - from);
      step.add(0, 30);
      const Array y = run_step(step, {}, shared, joined(part(q, kHeads, from, to), other_q),
                               joined(part(k, kKvHeads, from, to), other_k),
                               joined(part(v, kKvHeads, from, to), other_v), 2, EvalMode::kExact, order);
      got.insert(got.end(), y.floats().begin(), y.floats().begin() + (to - from) * kHeads * kD);
    }
    EXPECT_EQ(got, expected) << to_string(dtype) << " " << to_string(order);
  }
}

std::string run_error(const Step& step, int64_t block_size = kBlock) {
  std::mt19937 random(1);
  KvPages pages =
      KvPages::allocate(Type::kv_cache(DType::kF16, kKvHeads, kD), kBlocks * kBlock / block_size, block_size);
  const auto tokens = static_cast<int64_t>(step.slots.size());
  try {
    run_step(step, {}, pages, random_values(DType::kF16, tokens * kHeads * kD, random),
             random_values(DType::kF16, tokens * kKvHeads * kD, random),
             random_values(DType::kF16, tokens * kKvHeads * kD, random), 0, EvalMode::kExact, DotOrder::kPair);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Attention, RefusesAWrongBatch) {
  Step good;
  good.add(0, 6);
  good.add(3, 2);
  EXPECT_EQ(run_error(good), "no error");
  const auto with = [&](auto&& damage) {
    Step step = good;
    damage(step);
    return run_error(step);
  };
  EXPECT_THAT(with([](Step& s) { s.slots[1] = kBlocks * kBlock; }),
              HasSubstr("slot 256 of token 1 is outside 64 blocks of 4"));
  EXPECT_THAT(with([](Step& s) { s.slots[1] = -2; }), HasSubstr("slot -2 of token 1"));
  EXPECT_THAT(with([](Step& s) { s.table[1] = kBlocks; }), HasSubstr("sequence 0 names block 64 of 64"));
  EXPECT_THAT(with([](Step& s) { s.table[1] = -1; }), HasSubstr("sequence 0 names block -1 of 64"));
  EXPECT_THAT(with([](Step& s) { s.query_start[2] = 9; }), HasSubstr("sequence 1 has rows 6 .. 9 of 8"));
  EXPECT_THAT(with([](Step& s) { s.query_start[1] = -1; }), HasSubstr("sequence 0 has rows 0 .. -1"));
  EXPECT_THAT(with([](Step& s) { s.seq_lens[0] = 5; }), HasSubstr("sequence 0 has rows 0 .. 6 of 8 and 5 tokens"));
  EXPECT_THAT(with([](Step& s) { s.seq_lens[0] = 129; }),
              HasSubstr("sequence 0 has 129 tokens but a table of 32 blocks"));
  EXPECT_THAT(with([](Step& s) { s.query_start.pop_back(); }), HasSubstr("2 sequences with 2 query starts"));
  EXPECT_THAT(with([](Step& s) { s.table.pop_back(); }), HasSubstr("63 block ids"));
  EXPECT_THAT(run_error(good, 8), HasSubstr("the batch has blocks of 4, the cache of 8"));
}

}  // namespace
}  // namespace spyre::graph
