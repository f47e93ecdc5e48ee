// Fuzzes chat templates: any source either gives an Error or renders within the limits, and so does any source on a
// conversation with tools. The Rust library is not instrumented; the corpus (tests/data/fuzz/chat_template) matters
// more than time.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const nlohmann::ordered_json& conversation() {
  static const auto messages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "Be <|im_end|> terse."}, {"role": "user", "content": "H\u00e9llo\n"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
          "function": {"name": "f", "arguments": "{\"x\": [1, 2.5, null, true]}"}}]},
      {"role": "tool", "name": "f", "content": "7"}, {"role": "user", "content": [{"type": "text", "text": "?"}]}])");
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const spyre::text::ChatTemplate chat_template(source, "<s>", "</s>");
    static const auto tools = nlohmann::ordered_json::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "array"}}}}}])");
    const auto prompt = chat_template.render(conversation(), tools, nullptr, {"<s>", "</s>", "<|im_end|>"}, {});
    require(prompt.text().size() <= size_t{16} << 20);
    for (const auto& piece : prompt.pieces) require(!piece.text.empty());
  } catch (const spyre::Error& e) {
    require(e.code() != spyre::ErrorCode::kInternal);
    require(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
