#include "runner/worker.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/team.h"
#include "base/trace.h"

namespace spyre::runner {
namespace {

const std::string* error_of(const Logits& logits, const ScheduledRequest& request) {
  for (const auto& [token, message] : logits.row_errors) {
    if (token >= request.first_token && token < request.first_token + request.tokens) return &message;
  }
  return nullptr;
}

// The log-probs of the prompt tokens that the request's scored rows predict: the row of position p is about p + 1.
void score_prompt(const ScheduledRequest& request, const Logits& logits, VocabRow& scanned, RequestOutput& output) {
  const RequestState& state = *request.state;
  output.prompt_logprobs_start = request.start + 1;
  for (int64_t i = 0; i < request.scored_rows(); ++i) {
    scanned.scan(logits.row(request.logits_row + i));
    output.prompt_logprobs.push_back(
        token_logprob(scanned, state.tokens[request.start + 1 + i], *state.sampling.prompt_logprobs));
  }
}

}  // namespace

Worker::Worker(std::unique_ptr<ModelRunner> runner, const WorkerConfig& config, std::unique_ptr<TokenSampler> sampler)
    : runner_(std::move(runner)), config_(config) {
  SPYRE_CHECK(runner_ != nullptr);
  if (sampler) {
    lanes_.emplace_back().sampler = std::move(sampler);
    return;
  }
  const ThreadTeam* team = runner_->thread_team();
  lanes_.resize(team != nullptr ? team->size() : 1);
  for (Lane& lane : lanes_) lane.sampler = std::make_unique<Sampler>();
}

void Worker::load_model(const std::function<void(const LoadProgress&)>& progress) {
  runner_->load_model(progress ? progress : [](const LoadProgress&) {});
}

KvCacheSpec Worker::kv_cache_spec() const {
  return runner_->kv_cache_spec();
}

void Worker::initialize_kv_cache(int64_t num_blocks) {
  if (oldest_ticket_ != next_ticket_) {
    throw_error(ErrorCode::kFailedPrecondition, "the KV cache cannot be made anew: ticket {} is outstanding",
                oldest_ticket_);
  }
  const KvCacheSpec spec = runner_->kv_cache_spec();
  if (spec.num_groups != 1) {
    throw_error(ErrorCode::kUnsupported, "the model has {} KV cache groups; the worker serves models of 1",
                spec.num_groups);
  }
  batch_.reset();
  const InputBatchLimits limits{.block_size = spec.block_size,
                                .num_blocks = num_blocks,
                                .max_model_len = config_.max_model_len,
                                .max_num_batched_tokens = config_.max_num_batched_tokens,
                                .max_num_seqs = config_.max_num_seqs,
                                .vocab_size = runner_->vocab_size()};
  limits.check();
  runner_->initialize_kv_cache(num_blocks);
  batch_.emplace(limits);  // last: it takes memory by the block, which the runner has found there is
}

WarmUpReport Worker::warm_up() {
  return runner_->warm_up();
}

Ticket Worker::execute(const Step& step) {
  const HostSpan span(trace_, "worker", "execute");
  if (!batch_) throw_error(ErrorCode::kFailedPrecondition, "execute: initialize_kv_cache was not called");
  if (next_ticket_ - oldest_ticket_ == in_flight_.size()) {
    throw_error(ErrorCode::kFailedPrecondition, "execute: tickets {} and {} are outstanding; sample {} first",
                oldest_ticket_, next_ticket_ - 1, oldest_ticket_);
  }
  // A step that waited has its tokens by now (its elder was sampled); the batch is about to forget its rows.
  if (oldest_ticket_ != next_ticket_) run_waiting(slot(oldest_ticket_));

  batch_->apply(step);
  for (const int32_t block : step.blocks_to_zero) runner_->zero_block(block);
  for (const BlockCopy& copy : step.block_copies) runner_->copy_block(copy.from, copy.to);

  InFlight& current = slot(next_ticket_);
  current.ticket = next_ticket_;
  current.scheduled = batch_->scheduled();
  current.waiting = batch_->waits_for_tokens();
  current.exception = nullptr;
  if (!current.waiting) forward(current);
  for (const ScheduledRequest& request : current.scheduled) request.state->pending += request.samples;
  return next_ticket_++;
}

void Worker::forward(InFlight& step) {
  step.waiting = false;
  step.logits.row_errors.clear();
  if (step.scheduled.empty()) return;
  const ForwardBatch batch = batch_->forward_batch();
  runner_->forward(batch, step.logits);
  const int64_t rows = std::ssize(batch.logits_rows);
  if (rows > 0) {
    SPYRE_CHECK(step.logits.vocab_size == vocab_size(), "{} != {}", step.logits.vocab_size, vocab_size());
    SPYRE_CHECK(std::ssize(step.logits.values) >= rows * vocab_size(), "{} < {} x {}", step.logits.values.size(), rows,
                vocab_size());
  }
  batch_->advance();
}

void Worker::run_waiting(InFlight& step) {
  if (!step.waiting) return;
  try {
    forward(step);
  } catch (...) {
    step.exception = std::current_exception();  // sample() of this ticket throws it
  }
}

// The ticket is done with; tokens it has not drawn will not come.
void Worker::end(InFlight& step) {
  step.scheduled.clear();
  ++oldest_ticket_;
}

StepOutput Worker::sample(Ticket ticket, const GrammarMask* mask) {
  const HostSpan span(trace_, "worker", "sample");
  if (oldest_ticket_ == next_ticket_ || ticket != oldest_ticket_) {
    throw_error(ErrorCode::kFailedPrecondition, "sample: ticket {} is not the oldest outstanding one{}", ticket,
                oldest_ticket_ == next_ticket_ ? "; none is" : fmt::format(" ({})", oldest_ticket_));
  }
  InFlight& step = slot(ticket);
  MaskRows rows;
  if (mask) rows = rows_by_id(*mask, step);
  run_waiting(step);

  StepOutput output;
  output.requests.resize(step.scheduled.size());
  drawn_.assign(step.scheduled.size(), 0);
  try {
    if (step.exception) std::rethrow_exception(step.exception);
    sample_rows(step, rows, output);
  } catch (...) {
    for (size_t i = 0; i < step.scheduled.size(); ++i) {
      if (drawn_[i] == 0) step.scheduled[i].state->pending -= step.scheduled[i].samples;
    }
    end(step);
    throw;
  }
  end(step);
  return output;
}

// Requests share nothing but what is read, so any thread may take any of them: each takes the next one that is left.
void Worker::sample_rows(const InFlight& step, const MaskRows& rows, StepOutput& output) {
  std::atomic<size_t> next = 0;
  const auto work = [&](int index, int) {
    for (size_t i = next++; i < step.scheduled.size(); i = next++) {
      const ScheduledRequest& request = step.scheduled[i];
      const auto row = rows.find(request.state->id);
      output.requests[i] = sample_request(request, step.logits,
                                          row == rows.end() ? std::span<const uint32_t>{} : row->second, lanes_[index]);
      drawn_[i] = 1;
    }
  };
  if (lanes_.size() > 1 && step.scheduled.size() > 1) {
    TeamLease lease(*runner_->thread_team());
    lease->run(work);
  } else {
    const ScopedFlushDenormals flush;  // as members of a team compute
    work(0, 1);
  }
}

Worker::MaskRows Worker::rows_by_id(const GrammarMask& mask, const InFlight& step) const {
  if (mask.request_ids.size() != mask.rows.size()) {
    throw_error(ErrorCode::kInvalidArgument, "the grammar mask names {} requests but has {} rows",
                mask.request_ids.size(), mask.rows.size());
  }
  const int64_t words = (vocab_size() + 31) / 32;
  MaskRows rows;
  for (size_t i = 0; i < mask.rows.size(); ++i) {
    const RequestId& id = mask.request_ids[i];
    if (std::ssize(mask.rows[i]) != words) {
      throw_error(ErrorCode::kInvalidArgument, "request '{}': its grammar row has {} words; a vocabulary of {} has {}",
                  id, mask.rows[i].size(), vocab_size(), words);
    }
    const auto named = [&id](const ScheduledRequest& request) { return request.state->id == id; };
    if (std::none_of(step.scheduled.begin(), step.scheduled.end(), named)) {
      throw_error(ErrorCode::kInvalidArgument, "request '{}': has a grammar row but is not scheduled in the step", id);
    }
    if (!rows.emplace(id, mask.rows[i]).second) {
      throw_error(ErrorCode::kInvalidArgument, "request '{}': has two grammar rows", id);
    }
  }
  return rows;
}

RequestOutput Worker::sample_request(const ScheduledRequest& request, const Logits& logits,
                                     std::span<const uint32_t> allowed, Lane& lane) {
  RequestState& state = *request.state;
  RequestOutput output{.id = state.id};
  try {
    if (const std::string* message = error_of(logits, request); message && state.failure.empty()) {
      state.failure = *message;
    }
    if (state.failure.empty()) {
      if (request.scored_rows() > 0) score_prompt(request, logits, lane.row, output);
      if (request.samples) {
        const std::span<const float> row = logits.row(request.logits_row + request.logits_rows - 1);
        const int32_t token = lane.sampler->sample(state, row, allowed);
        if (state.sampling.logprobs) {
          output.logprobs.push_back(lane.sampler->logprob(row, token, *state.sampling.logprobs));
        }
        ++state.draws;
        batch_->append_token(state, token);
        output.tokens.push_back(token);
      }
      return output;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    state.failure = error.what();
  }
  // A failed request keeps its counts: a host that has scheduled ahead must not find a contradiction.
  if (request.samples) batch_->append_token(state, state.tokens.back());
  return {.id = state.id, .error = state.failure};
}

const RequestState* Worker::find(const RequestId& id) const {
  return batch_ ? batch_->find(id) : nullptr;
}

nlohmann::json Worker::report(const std::string& topic) const {
  return runner_->report(topic);
}

}  // namespace spyre::runner
