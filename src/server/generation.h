// One answer in the making: submits the prompts of a request to the engine, gathers or streams what comes back, and
// cancels when the client goes.
//
// A Generation is kept alive by the callbacks that the engine holds and by the exchange's action for a client that has
// gone. Deltas are taken over from the engine's thread by Exchange::post(), so that nothing is formatted there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/exchange.h"
#include "server/sampling.h"
#include "server/token_text.h"

namespace spyre::server {

// A choice of the answer. Streamed answers keep no texts and tokens.
struct Choice {
  int64_t index = 0;  // in the answer: prompt * n + choice
  size_t prompt = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<runner::TokenLogprob> logprobs, prompt_logprobs;
  int64_t generated = 0;    // tokens
  int64_t text_offset = 0;  // characters sent so far (completions)
  bool begun = false;       // something of it was sent
  std::optional<engine::FinishReason> finish_reason;
  std::optional<int32_t> stop_token;
  std::optional<std::string> stop_string;

  Json stop_reason() const;  // the stop token's id, the stop string, or null
};

// How an endpoint writes its answers.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  virtual std::string_view id_prefix() const = 0;     // "cmpl-"
  virtual std::string_view object() const = 0;        // "text_completion"
  virtual std::string_view chunk_object() const = 0;  // of an event
  virtual Json whole(Choice& choice) = 0;
  // Adds to the answer's top level.
  virtual void finish_whole(Json& answer, std::vector<Choice>& choices) = 0;
  // The choices[] entries of the events that a delta makes; none when it brings nothing to show.
  virtual std::vector<Json> chunks(Choice& choice, const engine::OutputDelta& delta) = 0;
};

struct GenerationPlan {
  std::vector<engine::Request> requests;  // one per prompt, all with the same n; ids are filled in
  AnswerOptions options;
  std::unique_ptr<AnswerFormat> format;
};

// Throws ApiError when the engine takes a request not; nothing is left running then. Afterwards the answer goes to
// |exchange| by itself.
void start_generation(std::shared_ptr<Exchange> exchange, const ServedModel& model, GenerationPlan plan);

// 128 random bits in hexadecimal.
std::string random_id();

}  // namespace spyre::server
