// Tokens and their log-probabilities as the OpenAI API writes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runner/step.h"
#include "server/json_reader.h"
#include "text/tokenizer.h"

namespace spyre::server {

// |bytes| with what is no UTF-8 replaced by U+FFFD, one per maximal part of a character.
std::string valid_utf8(std::string_view bytes);

// Characters that begin in |bytes|: summed over the tokens of a text it is the text's length, wherever tokens cut it.
int64_t count_characters(std::string_view bytes);

// How a token is written in logprobs. Without a tokenizer, or when asked, "token_id:5".
class TokenText {
 public:
  TokenText(const text::Tokenizer* tokenizer, bool as_ids) : tokenizer_(tokenizer), as_ids_(as_ids || !tokenizer) {}
  std::string bytes(
      int32_t id) const;  // the true ones; "" for ids that the tokenizer lacks (padding of the vocabulary)
  std::string text(int32_t id) const;

 private:
  const text::Tokenizer* tokenizer_;
  bool as_ids_;
};

// JSON has no infinity: vLLM's floor.
double finite_logprob(float logprob);

// The logprobs object of a completion: parallel lists tokens, token_logprobs, top_logprobs, text_offset. |offset| is
// where the first token begins in the text, in characters, and is moved on.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const TokenText& text, int32_t top) : text_(text), top_(top) {}
  void add_first_prompt_token(int32_t id, int64_t& offset);  // it has no probability
  void add(const runner::TokenLogprob& token, int64_t& offset);
  Json take();

 private:
  void add_token(int32_t id, int64_t& offset);

  const TokenText& text_;
  const int32_t top_;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

// An entry of logprobs.content in chat, with the token's bytes.
Json chat_logprob(const TokenText& text, const runner::TokenLogprob& token, int32_t top);

// vLLM's prompt_logprobs: null for the first token, then an object per token: id -> {logprob, rank, decoded_token}.
Json prompt_logprobs_json(const TokenText& text, const std::vector<runner::TokenLogprob>& logprobs);

}  // namespace spyre::server
