// The part of a request that completions and chat share: how tokens are chosen, where the text ends, what comes back.
#pragma once

#include <string>
#include <vector>

#include "engine/request.h"
#include "server/served_model.h"

namespace spyre::server {

struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;     // with stream: a last event with the usage
  bool continuous_usage = false;  // with stream: usage in every event
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  std::string id_suffix;  // the client's request_id; "" = make one up
};

// The sampling fields and stop rules of |body|, which check_fields() has passed; prompt, max_tokens and logprobs are
// the endpoint's own. Throws ApiError(400) for fields that contradict each other or the model.
engine::Request read_sampling(const Body& body, const ServedModel& model);

AnswerOptions read_answer_options(const Body& body);

// Applies truncate_prompt_tokens, and checks that prompt and answer fit the context: |asked| tokens, or, when none are
// asked, |fallback| or what the context leaves. Sets prompt and max_tokens of |request|. Throws ApiError(400) with the
// prompt's, the asked and the limit's count.
void fit_context(engine::Request& request, std::vector<int32_t> prompt, const Body& body, const RequestLimits& limits,
                 std::string_view asked_field, std::optional<int64_t> asked, int64_t fallback);

// -1 (the whole vocabulary) is allowed where --max-logprobs -1 is set.
void check_whole_vocabulary(std::string_view field, std::optional<int64_t> count, const RequestLimits& limits);

// ApiError(404) unless |body| names one of the model's names, or none.
void check_model_name(const Body& body, const ServedModel& model);

}  // namespace spyre::server
