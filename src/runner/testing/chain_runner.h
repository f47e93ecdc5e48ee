// The chain model: a ModelRunner whose KV pages say what context they are, so that every forward pass checks all of
// what it reads. A slot holds the token that was stored there, its position, and a hash of the chain of tokens up to
// it. Every sequence of a step is followed through its block table from position 0; where a slot was never written,
// holds another position, or does not continue the chain before it, the sequence gets a row error that names position
// and block. So a wrong table, slot or position, a missed resume, a false prefix hit and a page used anew all show,
// without any knowledge of requests; but for a prefix hit on another whole context from position 0 on, which only the
// log-probs tell.
//
// What follows the last token t of a context is t + 1 modulo the vocabulary: logits fall from there on by a step per
// token, wrapping round, so that greedy decoding under a grammar mask gives the first allowed token from t + 1 upwards.
// A part of the step depends on the hash of the context: every log-prob tells the whole of it.
//
// No weights, no arithmetic: the cost is the copying of a row of the vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runner/forward.h"

namespace spyre::runner::testing {

class ChainRunner : public ModelRunner {
 public:
  struct Shape {
    int64_t vocab_size = 320;
    int64_t block_size = 16;
    int64_t bytes_per_block = 4096;  // what a host is told; a page takes bytes_per_page()
  };

  explicit ChainRunner(const Shape& shape) : shape_(shape) {}

  void load_model(const std::function<void(const LoadProgress&)>& progress) override { progress({1, 1}); }
  int64_t vocab_size() const override { return shape_.vocab_size; }
  KvCacheSpec kv_cache_spec() const override {
    return {.block_size = shape_.block_size, .bytes_per_block = shape_.bytes_per_block, .num_groups = 1};
  }
  void initialize_kv_cache(int64_t num_blocks) override {
    num_blocks_ = num_blocks;
    slots_.assign(num_blocks * shape_.block_size, {});
  }
  WarmUpReport warm_up() override { return {}; }

  void forward(const ForwardBatch& batch, Logits& logits) override {
    ++forwards;
    if (before_forward) before_forward(batch);
    for (int64_t i = 0; i < batch.attention.sequences(); ++i) store(batch, i);
    for (int64_t i = 0; i < batch.attention.sequences(); ++i) verify(batch, i, logits);
    logits.vocab_size = shape_.vocab_size;
    logits.values.resize(batch.logits_rows.size() * shape_.vocab_size);
    for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
      fill_logits(slots_[batch.slots[batch.logits_rows[i]]], logits.values.data() + i * shape_.vocab_size);
    }
    if (after_forward) after_forward(batch, logits);
  }

  void copy_block(int32_t from, int32_t to) override { std::copy_n(page(from), shape_.block_size, page(to)); }
  void zero_block(int32_t block) override { std::fill_n(page(block), shape_.block_size, Slot{}); }
  // "forwards"; "echo", also as part of "all".
  nlohmann::json report(const std::string& topic) const override {
    const nlohmann::json echo = {{"forwards", forwards}, {"verified_positions", verified_positions}};
    if (topic == "forwards") return forwards;
    if (topic == "echo") return echo;
    if (topic == "all") return {{"echo", echo}};
    return nullptr;
  }

  int64_t bytes_per_page() const { return shape_.block_size * static_cast<int64_t>(sizeof(Slot)); }

  // Seams for faults.
  std::function<void(const ForwardBatch&)> before_forward;
  std::function<void(const ForwardBatch&, Logits&)> after_forward;
  int64_t forwards = 0;
  int64_t verified_positions = 0;

 private:
  struct Slot {
    int32_t token = -1, position = -1;
    uint64_t chain = 0;  // of all tokens up to this one
  };

  // The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
  static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  static uint64_t link(uint64_t chain, int32_t token, int64_t position) {
    return mix(chain +
               0x9e3779b97f4a7c15u * ((static_cast<uint64_t>(token) << 32) + static_cast<uint64_t>(position) + 1));
  }

  Slot* page(int32_t block) {
    if (block < 0 || block >= num_blocks_) {
      throw_error(ErrorCode::kInvalidArgument, "block {} is outside {} blocks", block, num_blocks_);
    }
    return slots_.data() + block * shape_.block_size;
  }
  const Slot& slot_at(const graph::AttentionBatch& attention, int64_t sequence, int64_t position) {
    return page(attention.blocks(sequence)[position / shape_.block_size])[position % shape_.block_size];
  }

  void store(const ForwardBatch& batch, int64_t sequence) {
    for (int32_t row = batch.attention.query_start[sequence]; row < batch.attention.query_start[sequence + 1]; ++row) {
      const int32_t position = batch.positions[row], token = batch.token_ids[row];
      const uint64_t before = position == 0 ? 0 : slot_at(batch.attention, sequence, position - 1).chain;
      slots_.at(batch.slots[row]) = {token, position, link(before, token, position)};
    }
  }

  void verify(const ForwardBatch& batch, int64_t sequence, Logits& logits) {
    const graph::AttentionBatch& attention = batch.attention;
    uint64_t chain = 0;
    for (int64_t p = 0; p < attention.seq_lens[sequence]; ++p, ++verified_positions) {
      const Slot& slot = slot_at(attention, sequence, p);
      const uint64_t expected = link(chain, slot.token, p);
      if (slot.position != p || slot.chain != expected) {
        // The first row that sees it; a row before position p does not.
        const int64_t row = attention.query_start[sequence] + std::max<int64_t>(0, p - attention.context(sequence));
        logits.row_errors.emplace_back(
            row, fmt::format("echo: position {} of its context, in block {}: {}", p,
                             attention.blocks(sequence)[p / shape_.block_size], what_is_wrong(slot, p)));
        return;
      }
      chain = expected;
    }
  }

  static std::string what_is_wrong(const Slot& slot, int64_t position) {
    if (slot.position < 0) return "nothing was written there";
    if (slot.position != position) return fmt::format("it holds position {}", slot.position);
    return fmt::format("its token {} was written for another context", slot.token);
  }

  void fill_logits(const Slot& last, float* row) const {
    constexpr int64_t kTelling = 16;  // tokens whose logits tell the context
    constexpr float kStep = 0.5f;
    const int64_t vocab = shape_.vocab_size, first = (last.token + 1) % vocab;
    for (int64_t i = 0; i < vocab; ++i) {
      const int64_t token = first + i < vocab ? first + i : first + i - vocab;
      row[token] = -kStep * static_cast<float>(i);
    }
    for (int64_t i = 0; i < std::min(kTelling, vocab); ++i) {
      const auto part = static_cast<float>(mix(last.chain + static_cast<uint64_t>(i)) >> 40) * 0x1p-24f;  // [0, 1)
      row[(first + i) % vocab] -= 0.5f * kStep * part;
    }
  }

  Shape shape_;
  int64_t num_blocks_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace spyre::runner::testing
