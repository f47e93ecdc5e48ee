// POST /v1/completions.
#pragma once

#include "server/generation.h"

namespace spyre::server {

// Everything of |body| is checked. Throws ApiError.
GenerationPlan plan_completion(const Json& body, const ServedModel& model);

}  // namespace spyre::server
