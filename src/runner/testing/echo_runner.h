// The echo model: a graph whose output shows the whole context of a request as it was written to and read back from the
// KV pages. Keys are 0, so attention is uniform; the value of a token is its embedding, rotated by its position; the
// output of a row is therefore the mean of the rotated embeddings of its context. One wrong id, position or block among
// 256 moves it by about 1/256, a thousand times the rounding error.
//
// It runs on the reference interpreter in fp32, through kv_store and attention like any model.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/interpreter.h"
#include "runner/forward.h"

namespace spyre::runner::testing {

class EchoModel {
 public:
  static constexpr int64_t kHeads = 2, kHeadSize = 32, kWidth = kHeads * kHeadSize;

  explicit EchoModel(int64_t vocab = 320, int64_t max_len = 256) : vocab_(vocab), max_len_(max_len) {
    std::mt19937 engine(20240611);
    std::normal_distribution<float> normal;
    embedding_.resize(vocab * kWidth);
    for (float& x : embedding_) x = normal(engine);
    head_.resize(vocab * kWidth);
    for (float& x : head_) x = normal(engine);
    rotation_.resize(max_len * kHeadSize);
    for (int64_t p = 0; p < max_len; ++p) {
      for (int64_t i = 0; i < kHeadSize / 2; ++i) {
        rotation_[p * kHeadSize + i] = static_cast<float>(std::cos(angle(p, i)));
        rotation_[p * kHeadSize + kHeadSize / 2 + i] = static_cast<float>(std::sin(angle(p, i)));
      }
    }
  }

  // What the output of the last of |context| must be; computed without the graph, in double.
  std::vector<double> mean(const std::vector<int32_t>& context) const {
    std::vector<double> sum(kWidth, 0.0);
    constexpr int64_t kHalf = kHeadSize / 2;
    for (size_t p = 0; p < context.size(); ++p) {
      const float* e = embedding_.data() + context[p] * kWidth;
      for (int64_t h = 0; h < kHeads; ++h, e += kHeadSize) {
        for (int64_t i = 0; i < kHalf; ++i) {
          const double c = std::cos(angle(p, i)), s = std::sin(angle(p, i));
          sum[h * kHeadSize + i] += e[i] * c - e[i + kHalf] * s;
          sum[h * kHeadSize + i + kHalf] += e[i] * s + e[i + kHalf] * c;
        }
      }
    }
    for (double& x : sum) x /= static_cast<double>(context.size());
    return sum;
  }

  int64_t vocab() const { return vocab_; }
  int64_t max_len() const { return max_len_; }
  const std::vector<float>& embedding() const { return embedding_; }
  const std::vector<float>& rotation() const { return rotation_; }
  const std::vector<float>& head() const { return head_; }

 private:
  static double angle(int64_t position, int64_t i) {
    return static_cast<double>(position) * std::pow(100.0, -2.0 * static_cast<double>(i) / kHeadSize);
  }

  int64_t vocab_, max_len_;
  std::vector<float> embedding_, rotation_, head_;
};

class EchoRunner final : public ModelRunner {
 public:
  enum class Output {
    kMean,   // the mean itself, then zeros up to the vocabulary
    kLogits  // a random head over it: something to sample from
  };

  EchoRunner(const EchoModel& model, Output output, int64_t block_size = 16)
      : model_(model), output_(output), block_size_(block_size) {}

  void load_model(const std::function<void(const LoadProgress&)>& progress) override { progress({1, 1}); }
  int64_t vocab_size() const override { return model_.vocab(); }
  KvCacheSpec kv_cache_spec() const override {
    return {.block_size = block_size_,
            .bytes_per_block = 2 * block_size_ * EchoModel::kWidth * static_cast<int64_t>(sizeof(float)),
            .num_groups = num_groups};
  }
  // Fresh pages hold NaN: whoever reads what was not written finds out.
  void initialize_kv_cache(int64_t num_blocks) override {
    pages_ = graph::KvPages::allocate(kv_type(), num_blocks, block_size_);
    std::fill(pages_.k.begin(), pages_.k.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(pages_.v.begin(), pages_.v.end(), std::numeric_limits<float>::quiet_NaN());
  }
  WarmUpReport warm_up() override { return {}; }

  void forward(const ForwardBatch& batch, Logits& logits) override {
    ++forwards;
    if (before_forward) before_forward(batch);
    const std::vector<float> rows = run_graph(batch);
    logits.vocab_size = model_.vocab();
    logits.values.assign(batch.logits_rows.size() * model_.vocab(), 0.0f);
    for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
      const float* mean = rows.data() + batch.logits_rows[i] * EchoModel::kWidth;
      float* row = logits.values.data() + i * model_.vocab();
      if (output_ == Output::kMean) {
        std::copy_n(mean, EchoModel::kWidth, row);
      } else {
        project(mean, row);
      }
    }
    if (after_forward) after_forward(batch, logits);
  }

  void copy_block(int32_t from, int32_t to) override {
    const size_t size = block_size_ * EchoModel::kWidth;
    for (auto* pages : {&pages_.k, &pages_.v}) {
      std::copy_n(pages->begin() + from * size, size, pages->begin() + to * size);
    }
  }
  void zero_block(int32_t block) override {
    const size_t size = block_size_ * EchoModel::kWidth;
    for (auto* pages : {&pages_.k, &pages_.v}) std::fill_n(pages->begin() + block * size, size, 0.0f);
  }
  nlohmann::json report(const std::string& topic) const override {
    return topic == "forwards" ? nlohmann::json(forwards) : nlohmann::json();
  }

  // Seams for faults.
  std::function<void(const ForwardBatch&)> before_forward;
  std::function<void(const ForwardBatch&, Logits&)> after_forward;
  int64_t num_groups = 1;
  int64_t forwards = 0;

 private:
  graph::Type kv_type() const { return graph::Type::kv_cache(DType::kF32, EchoModel::kHeads, EchoModel::kHeadSize); }
  static graph::Type rows_type(DType dtype, int64_t rows) {
    return graph::Type::tensor(dtype, std::vector<graph::Dim>{{rows, true}});
  }
  graph::Type table_type(int64_t rows, int64_t columns) const {
    return graph::Type::tensor(DType::kF32, std::vector<int64_t>{rows, columns});
  }

  const graph::Graph& graph_for(int64_t tokens) {
    const auto found = graphs_.find(tokens);
    if (found != graphs_.end()) return found->second;
    graph::Builder b("echo");
    const auto ids = b.input("ids", rows_type(DType::kI32, tokens));
    const auto positions = b.input("positions", rows_type(DType::kI32, tokens));
    const auto slots = b.input("slots", rows_type(DType::kI32, tokens));
    const auto batch = b.input("batch", graph::Type::batch());
    const auto embedding = b.parameter("embedding", table_type(model_.vocab(), EchoModel::kWidth));
    const auto rotation = b.parameter("rotation", table_type(model_.max_len(), EchoModel::kHeadSize));
    const auto kv = b.state("kv", kv_type());
    const auto x = b.reshape(b.gather_rows(embedding, ids), {-1, EchoModel::kHeads, EchoModel::kHeadSize});
    const auto zero = b.scale(x, 0.0);
    const auto v = b.rotary(x, b.gather_rows(rotation, positions));
    const auto stored = b.kv_store(kv, zero, v, slots);
    b.output(b.reshape(b.attention(zero, stored, batch, 1.0), {-1, EchoModel::kWidth}));
    return graphs_.emplace(tokens, b.finish()).first->second;
  }

  std::vector<float> run_graph(const ForwardBatch& batch) {
    using graph::Array;
    const auto tokens = static_cast<int64_t>(batch.token_ids.size());
    const graph::Type type = rows_type(DType::kI32, tokens);
    graph::Bindings bindings;
    bindings.inputs = {Array::view(type, batch.token_ids.data()), Array::view(type, batch.positions.data()),
                       Array::view(type, batch.slots.data()), Array()};
    bindings.parameters = {Array::view(table_type(model_.vocab(), EchoModel::kWidth), model_.embedding().data()),
                           Array::view(table_type(model_.max_len(), EchoModel::kHeadSize), model_.rotation().data())};
    bindings.states = {&pages_};
    bindings.batch = &batch.attention;
    const std::vector<Array> outputs = graph::Interpreter(graph::EvalMode::kFp32).run(graph_for(tokens), bindings);
    return {outputs[0].floats().begin(), outputs[0].floats().end()};
  }

  void project(const float* mean, float* row) const {
    for (int64_t t = 0; t < model_.vocab(); ++t) {
      const float* w = model_.head().data() + t * EchoModel::kWidth;
      float sum = 0;
      for (int64_t i = 0; i < EchoModel::kWidth; ++i) sum += mean[i] * w[i];
      row[t] = sum;
    }
  }

  const EchoModel& model_;
  Output output_;
  int64_t block_size_;
  graph::KvPages pages_;
  std::map<int64_t, graph::Graph> graphs_;
};

}  // namespace spyre::runner::testing
