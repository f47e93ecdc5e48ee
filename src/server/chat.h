// POST /v1/chat/completions, and the reading of conversations that /tokenize shares.
#pragma once

#include "server/generation.h"

namespace spyre::server {

// Everything of |body| is checked. Throws ApiError.
GenerationPlan plan_chat(const Json& body, const ServedModel& model);

// The prompt of the conversation in |body|, which check_fields() has passed. Throws ApiError(400): what is wrong with
// which message, or what the template says.
ChatPromptIds read_conversation(const Body& body, const ServedModel& model);

}  // namespace spyre::server
