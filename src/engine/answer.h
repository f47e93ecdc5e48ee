// One choice of a request as its reader sees it: from drawn tokens to text, and when it is over.
//
// An answer ends, in this order of precedence, with a stop string, an ending token (EOS or a stop token), or a limit
// (max_tokens, the model's length). An ending token has no text, unless |include_stop_in_output|; text that was held
// (half a character, the beginning of a stop string) is flushed with the end. The texts of all deltas joined are what
// decoding prompt and tokens together adds to the prompt's text, cut where a stop string says.
//
// Single-threaded. The tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/request.h"
#include "engine/stop_strings.h"
#include "text/detokenizer.h"

namespace spyre::engine {

class Answer {
 public:
  // |tokenizer| may be null: no text then. |max_model_len| bounds prompt and answer together.
  Answer(const Request& request, const text::Tokenizer* tokenizer, int64_t max_model_len);

  // One more token: fills in delta's token_ids, text and, if it ends the answer, how.
  void push(int32_t token, OutputDelta& delta);
  // It ends for another reason than its tokens.
  void finish(FinishReason reason, OutputDelta& delta);

  int64_t tokens() const { return count_; }

 private:
  bool ends_with(int32_t token, OutputDelta& delta) const;
  void flush(OutputDelta& delta);

  const runner::SamplingParams& sampling_;  // of the request, which outlives its answers
  bool include_stop_;
  int64_t most_;  // tokens
  std::optional<text::Detokenizer> detokenizer_;
  StopStrings stops_;
  int64_t count_ = 0;
};

}  // namespace spyre::engine
