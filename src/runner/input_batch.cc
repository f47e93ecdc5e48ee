#include "runner/input_batch.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "runner/sampler.h"
#include "runner/step_plan.h"

namespace spyre::runner {
namespace {

constexpr int32_t kNotDrawn = -1;  // stands for a token of an outstanding ticket

}  // namespace

void InputBatchLimits::check() const {
  const auto at_least = [](std::string_view name, int64_t value, int64_t least) {
    if (value < least) throw_error(ErrorCode::kInvalidArgument, "{} is {}; at least {} is needed", name, value, least);
  };
  at_least("block_size", block_size, 1);
  at_least("num_blocks", num_blocks, 2);
  at_least("max_model_len", max_model_len, 1);
  at_least("max_num_batched_tokens", max_num_batched_tokens, 1);
  at_least("max_num_seqs", max_num_seqs, 1);
  at_least("vocab_size", vocab_size, 1);
  if (num_blocks > std::numeric_limits<int32_t>::max() / block_size) {
    throw_error(ErrorCode::kInvalidArgument, "num_blocks {} x block_size {} does not fit 32-bit slots", num_blocks,
                block_size);
  }
}

namespace {

InputBatchLimits checked(const InputBatchLimits& limits) {
  limits.check();
  return limits;
}

RequestPtr first_schedule(const NewRequest& request, int64_t vocab_size) {
  auto state = std::make_shared<RequestState>();
  state->id = request.id;
  state->tokens = request.prefill_token_ids ? *request.prefill_token_ids : request.prompt_token_ids;
  state->prompt_length = std::ssize(request.prompt_token_ids);
  state->sampling = request.sampling;
  state->draws = state->output_length();  // a history that comes with generated tokens was drawn for them
  try {
    validate(request.sampling, vocab_size);
    const std::span<const int32_t> tokens = state->tokens;
    state->edits = LogitsEdits(request.sampling, tokens.first(state->prompt_length),
                               tokens.subspan(state->prompt_length), vocab_size);
  } catch (const Error& error) {
    state->failure = error.what();  // hosts check before they queue; one that does not loses this request only
  }
  return state;
}

}  // namespace

InputBatch::InputBatch(const InputBatchLimits& limits) : limits_(checked(limits)), marks_(limits.num_blocks) {}

void InputBatch::apply(const Step& step) {
  const std::vector<PlannedRequest> plan = plan_step(step, limits_, requests_, marks_);

  scheduled_.clear();
  for (auto* rows : {&token_ids_, &positions_, &slots_, &seq_lens_, &logits_rows_}) rows->clear();
  query_start_.assign(1, 0);
  for (const RequestId& id : step.finished) requests_.erase(id);
  for (const PlannedRequest& planned : plan) commit(planned);
}

void InputBatch::commit(const PlannedRequest& planned) {
  RequestPtr state = planned.known;
  if (!state) {
    state = first_schedule(*planned.fresh, limits_.vocab_size);
    requests_.insert_or_assign(state->id, state);
  }
  // A resume keeps tokens, sampling parameters and draws as they are here; only where it stands is the scheduler's
  // word.
  if (planned.replaces_blocks) state->blocks.clear();
  state->blocks.insert(state->blocks.end(), planned.new_blocks.begin(), planned.new_blocks.end());
  state->computed = planned.computed;
  flatten(state, planned.scheduled);
}

void InputBatch::flatten(const RequestPtr& state, int64_t tokens) {
  const int64_t start = state->computed, end = start + tokens;
  SPYRE_CHECK(end <= state->known(), "request '{}': {} > {}", state->id, end, state->known());
  ScheduledRequest scheduled{.state = state,
                             .first_token = std::ssize(token_ids_),
                             .tokens = tokens,
                             .start = start,
                             .samples = end == state->known()};
  for (int64_t p = start; p < end; ++p) {
    token_ids_.push_back(p < std::ssize(state->tokens) ? state->tokens[p] : kNotDrawn);
    positions_.push_back(static_cast<int32_t>(p));
    const int64_t block = state->blocks[p / limits_.block_size];
    slots_.push_back(static_cast<int32_t>(block * limits_.block_size + p % limits_.block_size));
  }
  query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
  seq_lens_.push_back(static_cast<int32_t>(end));

  // The row of position p scores the prompt token at p + 1; the last row of a sampling request gives its next token.
  int64_t scored = 0;
  if (state->sampling.prompt_logprobs) scored = std::max<int64_t>(0, std::min(end, state->prompt_length - 1) - start);
  scheduled.logits_rows = scored + (scheduled.samples ? 1 : 0);
  if (scheduled.logits_rows > 0) scheduled.logits_row = std::ssize(logits_rows_);
  for (int64_t i = 0; i < scored; ++i) logits_rows_.push_back(static_cast<int32_t>(scheduled.first_token + i));
  if (scheduled.samples) logits_rows_.push_back(static_cast<int32_t>(scheduled.first_token + tokens - 1));
  scheduled_.push_back(std::move(scheduled));
}

bool InputBatch::waits_for_tokens() const {
  // Only the last known token of a request can be one that is not drawn yet.
  return std::any_of(scheduled_.begin(), scheduled_.end(), [](const ScheduledRequest& request) {
    return request.start + request.tokens > std::ssize(request.state->tokens);
  });
}

ForwardBatch InputBatch::forward_batch() {
  SPYRE_CHECK(!waits_for_tokens());
  int64_t max_blocks = 0;
  for (ScheduledRequest& request : scheduled_) {
    const int64_t end = request.start + request.tokens;
    int32_t& last = token_ids_[request.first_token + request.tokens - 1];
    if (last == kNotDrawn) last = request.state->tokens[end - 1];
    max_blocks = std::max(max_blocks, (end + limits_.block_size - 1) / limits_.block_size);
  }
  block_table_.assign(scheduled_.size() * max_blocks, 0);  // unused entries name the null block
  for (size_t i = 0; i < scheduled_.size(); ++i) {
    const std::vector<int32_t>& blocks = scheduled_[i].state->blocks;
    const int64_t used = (seq_lens_[i] + limits_.block_size - 1) / limits_.block_size;
    std::copy_n(blocks.begin(), used, block_table_.begin() + static_cast<int64_t>(i) * max_blocks);
  }
  return {.token_ids = token_ids_,
          .positions = positions_,
          .slots = slots_,
          .attention = {.block_size = limits_.block_size,
                        .query_start = query_start_,
                        .seq_lens = seq_lens_,
                        .block_table = block_table_,
                        .max_blocks = max_blocks,
                        .causal = true},
          .logits_rows = logits_rows_};
}

void InputBatch::advance() {
  for (const ScheduledRequest& request : scheduled_) request.state->computed = request.start + request.tokens;
}

void InputBatch::append_token(RequestState& request, int32_t token) {
  SPYRE_CHECK(token >= 0 && token < limits_.vocab_size, "request '{}': token {} of {}", request.id, token,
              limits_.vocab_size);
  request.tokens.push_back(token);
  request.edits.append(token);
  if (request.pending > 0) --request.pending;
}

const RequestState* InputBatch::find(const RequestId& id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

}  // namespace spyre::runner
