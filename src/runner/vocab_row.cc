#include "runner/vocab_row.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace spyre::runner {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLowest = -std::numeric_limits<float>::infinity();

[[noreturn]] void refuse(std::span<const float> logits) {
  const auto wrong = [](float x) { return !(x <= kLargest); };
  const auto first = std::find_if(logits.begin(), logits.end(), wrong);
  throw_error(ErrorCode::kUnsupported, "{} of {} logits are not finite; the first is {} at token {}",
              std::count_if(logits.begin(), logits.end(), wrong), logits.size(), *first, first - logits.begin());
}

}  // namespace

VocabRow::VocabRow() : kernels_(&vocab_kernels(CpuFeatures::capped_by_environment())) {}

void VocabRow::scan(std::span<const float> logits) {
  SPYRE_CHECK(!logits.empty());
  logits_ = logits;
  mass_.reset();
  block_max_.resize(vocab_blocks(std::ssize(logits)));
  if (!kernels_->maxima(logits.data(), std::ssize(logits), block_max_.data())) refuse(logits);
  highest_ = *std::max_element(block_max_.begin(), block_max_.end());
}

int32_t VocabRow::first_highest() const {
  if (highest_ == kLowest) return -1;
  const auto block = std::find(block_max_.begin(), block_max_.end(), highest_);
  const auto first = logits_.begin() + (block - block_max_.begin()) * kVocabBlock;
  return static_cast<int32_t>(std::find(first, logits_.end(), highest_) - logits_.begin());
}

float VocabRow::threshold(int64_t count) {
  // The |count| blocks of the largest maxima hold at least |count| entries as large as the least of these maxima.
  if (count > std::ssize(block_max_)) return kLowest;
  sorted_.assign(block_max_.begin(), block_max_.end());
  std::nth_element(sorted_.begin(), sorted_.begin() + (count - 1), sorted_.end(), std::greater<>());
  return sorted_[count - 1];
}

void VocabRow::weigh(float inverse) {
  SPYRE_CHECK(highest_ > kLowest && inverse > 0, "{} {}", highest_, inverse);
  weights_.resize(block_max_.size() * kVocabBlock);
  block_mass_.resize(block_max_.size());
  kernels_->weigh(logits_.data(), std::ssize(logits_), highest_, inverse, weights_.data(), block_mass_.data());
  if (inverse == 1.0f) mass_ = weighed_mass();
}

double VocabRow::weighed_mass() const {
  double sum = 0;
  for (const float mass : block_mass_) sum += mass;
  return sum;
}

VocabTail VocabRow::tail(float least) const {
  return kernels_->tail(logits_.data(), std::ssize(logits_), block_max_.data(), weights_.data(), least);
}

std::span<const int32_t> VocabRow::tokens_between(float least, float below) {
  tokens_.resize(logits_.size() + 1);
  const int64_t count = kernels_->select(logits_.data(), std::ssize(logits_), block_max_.data(),
                                         std::max(least, std::numeric_limits<float>::lowest()), below, tokens_.data());
  return std::span(tokens_).first(count);
}

void VocabRow::cut_after(int32_t token) {
  kernels_->cut(logits_.data(), std::ssize(logits_), block_max_.data(), logits_[token], token, weights_.data(),
                block_mass_.data());
}

double VocabRow::mass() {
  SPYRE_CHECK(highest_ > kLowest);
  if (mass_) return *mass_;
  block_mass_.resize(block_max_.size());
  kernels_->weigh(logits_.data(), std::ssize(logits_), highest_, 1.0f, nullptr, block_mass_.data());
  mass_ = weighed_mass();
  return *mass_;
}

int64_t VocabRow::rank(int32_t token) const {
  return 1 + kernels_->rank(logits_.data(), std::ssize(logits_), block_max_.data(), logits_[token], token);
}

}  // namespace spyre::runner
