// What a fuzzer does with its input, shared with the test that replays the corpora (as formats/fuzz_entries.h): the
// text of the error, "" when the input was taken. Anything but an Error leaves the function and is a bug.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace spyre::text {

// The stream of |ids| is their one-shot decoding.
inline void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string streamed;
  for (const TokenId id : ids) streamed += detokenizer.push(id);
  streamed += detokenizer.finish();
  SPYRE_CHECK(streamed == tokenizer.decode(ids, skip_special));
}

inline void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse : {false, true}) {
    try {
      const std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = true, .parse_special = parse});
      for (const TokenId id : ids) SPYRE_CHECK(id >= 0 && id < tokenizer.vocab_size());
      check_stream(tokenizer, ids, !parse);
      if (!ids.empty()) tokenizer.token_bytes(ids.front());
    } catch (const Error& e) {
      SPYRE_CHECK(e.code() != ErrorCode::kInternal, "{}", e.what());
    }
  }
}

// tokenizer.json: an Error, or a tokenizer that works.
inline std::string fuzz_tokenizer_json(std::string_view json) {
  try {
    const auto tokenizer = Tokenizer::from_json(json);
    use(tokenizer, "Hello, world!  it's 42 <s></s> a\u00e9\u4f60\U0001F600\n\n\t x");
    use(tokenizer, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    std::vector<TokenId> all;
    for (TokenId id = 0; id < std::min<TokenId>(tokenizer.vocab_size(), 600); ++id) all.push_back(id);
    check_stream(tokenizer, all, false);
  } catch (const Error& e) {
    SPYRE_CHECK(e.code() != ErrorCode::kInternal, "{}", e.what());
    return e.what();
  }
  return "";
}

// A chat template: an Error, or a prompt within the limits, of a conversation with tools.
inline std::string fuzz_chat_template(std::string_view source) {
  static const auto messages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "Be <|im_end|> terse."}, {"role": "user", "content": "H\u00e9llo\n"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
          "function": {"name": "f", "arguments": "{\"x\": [1, 2.5, null, true]}"}}]},
      {"role": "tool", "name": "f", "content": "7"}, {"role": "user", "content": [{"type": "text", "text": "?"}]}])");
  static const auto tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "array"}}}}}])");
  try {
    const ChatTemplate chat_template(source, "<s>", "</s>");
    const auto prompt = chat_template.render(messages, tools, nullptr, {"<s>", "</s>", "<|im_end|>"}, {});
    SPYRE_CHECK(prompt.text().size() <= size_t{16} << 20);
    for (const auto& piece : prompt.pieces) SPYRE_CHECK(!piece.text.empty());
  } catch (const Error& e) {
    SPYRE_CHECK(e.code() != ErrorCode::kInternal, "{}", e.what());
    return e.what();
  }
  return "";
}

}  // namespace spyre::text
