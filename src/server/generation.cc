#include "server/generation.h"

#include <atomic>
#include <ctime>
#include <random>

#include "base/log.h"
#include "server/api_error.h"
#include "server/sse.h"

namespace spyre::server {
namespace {

using engine::FinishReason;

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<Exchange> exchange, const ServedModel& model, GenerationPlan plan);
  void start();

 private:
  void on_delta(size_t prompt, engine::OutputDelta&& delta);
  void gather(Choice& choice, engine::OutputDelta&& delta);
  void stream(Choice& choice, const engine::OutputDelta& delta);
  void fail(const std::string& why);
  void complete();
  void cancel_all();
  Json head(std::string_view object) const;
  Json usage() const;

  const std::shared_ptr<Exchange> exchange_;
  engine::EngineClient& engine_;
  const std::string model_name_;
  const AnswerOptions options_;
  const std::unique_ptr<AnswerFormat> format_;
  std::vector<engine::Request> requests_;  // moved away by start()
  std::vector<engine::RequestId> ids_;
  int32_t n_;
  std::string answer_id_;
  int64_t created_;

  // On the exchange's strand.
  std::vector<Choice> choices_;
  std::vector<int64_t> cached_tokens_;  // by prompt
  int64_t prompt_tokens_ = 0;
  size_t unfinished_;
  bool streaming_ = false, done_ = false;
};

Generation::Generation(std::shared_ptr<Exchange> exchange, const ServedModel& model, GenerationPlan plan)
    : exchange_(std::move(exchange)),
      engine_(*model.engine),
      model_name_(model.names.front()),
      options_(plan.options),
      format_(std::move(plan.format)),
      requests_(std::move(plan.requests)),
      n_(requests_.front().n),
      created_(static_cast<int64_t>(std::time(nullptr))) {
  const std::string unique = random_id();
  answer_id_ = std::string(format_->id_prefix()) + (options_.id_suffix.empty() ? unique : options_.id_suffix);
  choices_.resize(requests_.size() * static_cast<size_t>(n_));
  unfinished_ = choices_.size();
  cached_tokens_.resize(requests_.size());
  for (size_t p = 0; p < requests_.size(); ++p) {
    requests_[p].id = fmt::format("{}{}-{}", format_->id_prefix(), unique, p);  // never the client's: it must be unique
    ids_.push_back(requests_[p].id);
    prompt_tokens_ += static_cast<int64_t>(requests_[p].prompt_ids.size());
    for (int32_t c = 0; c < n_; ++c) {
      Choice& choice = choices_[p * static_cast<size_t>(n_) + static_cast<size_t>(c)];
      choice.index = static_cast<int64_t>(p) * n_ + c;
      choice.prompt = p;
    }
  }
}

void Generation::start() {
  const auto self = shared_from_this();
  std::vector<engine::Request> requests = std::move(requests_);
  for (size_t p = 0; p < requests.size(); ++p) {
    const auto on_output = [self, p](engine::OutputDelta&& delta) {
      self->exchange_->post([self, p, delta = std::move(delta)]() mutable { self->on_delta(p, std::move(delta)); });
    };
    try {
      engine_.submit(std::move(requests[p]), on_output);
    } catch (...) {
      exchange_->post([self] { self->done_ = true; });  // what the earlier ones still bring leads nowhere
      for (size_t earlier = 0; earlier < p; ++earlier) engine_.cancel(ids_[earlier]);
      throw;
    }
  }
  exchange_->on_gone([self] { self->cancel_all(); });
}

void Generation::cancel_all() {
  done_ = true;
  for (const engine::RequestId& id : ids_) engine_.cancel(id);
}

void Generation::on_delta(size_t prompt, engine::OutputDelta&& delta) {
  if (done_) return;
  Choice& choice = choices_[prompt * static_cast<size_t>(n_) + static_cast<size_t>(delta.choice)];
  if (choice.finish_reason) return;
  if (delta.finish_reason == FinishReason::kError) return fail(delta.error);
  choice.generated += static_cast<int64_t>(delta.token_ids.size());
  cached_tokens_[prompt] = delta.num_cached_tokens;
  choice.finish_reason = delta.finish_reason;
  choice.stop_token = delta.stop_token;
  choice.stop_string = delta.stop_string;
  if (delta.finish_reason) --unfinished_;
  if (options_.stream) {
    stream(choice, delta);
  } else {
    gather(choice, std::move(delta));
  }
  if (unfinished_ == 0) complete();
}

void Generation::gather(Choice& choice, engine::OutputDelta&& delta) {
  choice.text += delta.text;
  choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  const auto move_to = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_to(choice.logprobs, delta.logprobs);
  move_to(choice.prompt_logprobs, delta.prompt_logprobs);
}

// The stream begins with the first delta: what fails before it is still an HTTP error.
void Generation::stream(Choice& choice, const engine::OutputDelta& delta) {
  if (!streaming_) exchange_->begin_stream();
  streaming_ = true;
  std::string events;
  for (Json& entry : format_->chunks(choice, delta)) {
    Json chunk = head(format_->chunk_object());
    chunk["choices"] = Json::array({std::move(entry)});
    if (options_.include_usage) chunk["usage"] = options_.continuous_usage ? usage() : Json(nullptr);
    events += sse_event(dump(chunk));
  }
  if (!events.empty()) exchange_->write(std::move(events));
}

void Generation::fail(const std::string& why) {
  cancel_all();
  const ApiError error(500, why.empty() ? "the engine failed this request" : why);
  log().warn("request {} failed: {}", answer_id_, quotable(error.what(), 300));
  if (!streaming_) return exchange_->respond(error_response(error));
  exchange_->write(sse_event(error_json(error)) + std::string(kSseDone));
  exchange_->end_stream();
}

void Generation::complete() {
  done_ = true;
  if (options_.stream) {
    std::string events;
    if (options_.include_usage) {
      Json chunk = head(format_->chunk_object());
      chunk["choices"] = Json::array();
      chunk["usage"] = usage();
      events = sse_event(dump(chunk));
    }
    exchange_->write(events + std::string(kSseDone));
    return exchange_->end_stream();
  }
  Json answer = head(format_->object());
  Json choices = Json::array();
  for (Choice& choice : choices_) choices.push_back(format_->whole(choice));
  answer["choices"] = std::move(choices);
  answer["usage"] = usage();
  format_->finish_whole(answer, choices_);
  exchange_->respond({.body = dump(answer)});
}

Json Generation::head(std::string_view object) const {
  Json out;
  out["id"] = answer_id_;
  out["object"] = object;
  out["created"] = created_;
  out["model"] = model_name_;
  return out;
}

Json Generation::usage() const {
  int64_t generated = 0, cached = 0;
  for (const Choice& choice : choices_) generated += choice.generated;
  for (const int64_t tokens : cached_tokens_) cached += tokens;
  Json out;
  out["prompt_tokens"] = prompt_tokens_;
  out["total_tokens"] = prompt_tokens_ + generated;
  out["completion_tokens"] = generated;
  out["prompt_tokens_details"] = Json::object({{"cached_tokens", cached}});
  return out;
}

}  // namespace

Json Choice::stop_reason() const {
  if (stop_token) return *stop_token;
  if (stop_string) return *stop_string;
  return nullptr;
}

void start_generation(std::shared_ptr<Exchange> exchange, const ServedModel& model, GenerationPlan plan) {
  std::make_shared<Generation>(std::move(exchange), model, std::move(plan))->start();
}

std::string random_id() {
  static thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("{:016x}{:016x}", random(), random());
}

}  // namespace spyre::server
