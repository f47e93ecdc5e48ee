#include "engine/answer.h"

#include <algorithm>

namespace spyre::engine {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Answer::Answer(const Request& request, const text::Tokenizer* tokenizer, int64_t max_model_len)
    : sampling_(request.sampling),
      include_stop_(request.include_stop_in_output),
      most_(std::min(request.sampling.max_tokens, max_model_len - std::ssize(request.prompt_ids))),
      stops_(request.stop, request.include_stop_in_output) {
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(*tokenizer, request.skip_special_tokens);
  detokenizer_->follow(request.prompt_ids);
}

// An EOS token that is a stop token too ends the answer as EOS does, as in vLLM.
bool Answer::ends_with(int32_t token, OutputDelta& delta) const {
  if (count_ < sampling_.min_tokens) return false;
  if (!sampling_.ignore_eos && contains(sampling_.eos_token_ids, token)) return true;
  if (!contains(sampling_.stop_token_ids, token)) return false;
  delta.stop_token = token;
  return true;
}

void Answer::push(int32_t token, OutputDelta& delta) {
  ++count_;
  delta.token_ids.push_back(token);
  const bool ending = ends_with(token, delta);
  // vLLM: a stop string counts when it is completed by a token after the first min_tokens.
  if (detokenizer_ && (!ending || include_stop_)) {
    delta.text += stops_.push(detokenizer_->push(token), count_ > sampling_.min_tokens);
  }
  if (!stops_.matched()) {
    if (!ending && count_ < most_) return;
    flush(delta);
  }
  delta.finish_reason = ending || stops_.matched() ? FinishReason::kStop : FinishReason::kLength;
  delta.stop_string = stops_.matched();
  if (delta.stop_string) delta.stop_token.reset();
}

void Answer::finish(FinishReason reason, OutputDelta& delta) {
  flush(delta);
  delta.finish_reason = reason;
}

// The last bytes may complete a stop string too.
void Answer::flush(OutputDelta& delta) {
  if (!detokenizer_ || stops_.matched()) return;
  delta.text += stops_.push(detokenizer_->finish(), count_ > sampling_.min_tokens);
  delta.text += stops_.flush();
}

}  // namespace spyre::engine
