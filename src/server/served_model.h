// The model that a server serves: what its protocol code needs of it. Everything here is safe to use from any thread
// and outlives the server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "formats/generation_config.h"
#include "server/fields.h"
#include "text/tokenizer.h"

namespace spyre::server {

// A rendered conversation.
struct ChatPromptIds {
  std::vector<int32_t> ids;
  std::string text;
};

struct ChatArguments {
  Json messages;  // checked: a list of objects with a role
  Json tools;     // a list, or null
  Json kwargs;    // an object, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
};

// Throws Error(kInvalidArgument) with what the template says.
using ChatEncoder = std::function<ChatPromptIds(const ChatArguments&)>;

struct ServedModel {
  std::vector<std::string> names;  // the first one stands in answers
  std::string root;                // where it was loaded from
  int64_t created = 0;             // Unix time
  engine::EngineClient* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;  // none: ids only
  ChatEncoder chat;                            // none: no chat
  std::vector<int32_t> eos_token_ids;
  formats::GenerationDefaults defaults;  // hold where a request gives no value
  Json version;                          // further members of /version

  // The limits of the engine, and those of the server.
  RequestLimits limits;
};

}  // namespace spyre::server
