// Chat templates: messages to the text of a prompt, in Hugging Face's dialect of Jinja, rendered by rust/text.
//
// A ChatTemplate does not change once made and may be used from any number of threads. Templates come from model files
// and run user data: both are hostile. Rendering is bounded (steps, recursion, time, bytes made).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

struct SpyreTextTemplate;

namespace spyre::text {

// A rendered prompt, cut where its reading changes: the text of a special token is that token in what the template
// wrote, and ordinary text in what a user wrote.
struct ChatPrompt {
  struct Piece {
    std::string text;
    bool parse_special = true;
  };
  std::vector<Piece> pieces;
  std::string text() const;  // joined
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is left open; excludes add_generation_prompt
  bool guard_special = true;            // special-token text in message content stays text
};

class ChatTemplate {
 public:
  // |bos|, |eos| are the texts of these tokens for the template's own variables; empty: there is none. |tool_use| is
  // the template for requests with tools, where a model has one of its own. Throws Error(kUnsupported) naming the line
  // when a template does not parse.
  ChatTemplate(std::string_view source, std::string_view bos, std::string_view eos, std::string_view tool_use = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // |messages| is an array of objects as in the OpenAI API; |tools| an array or null; |kwargs| an object of further
  // variables (chat_template_kwargs) or null. |specials| are the texts that must not be read as tokens in what a user
  // wrote. Throws Error(kInvalidArgument): the text of raise_exception(), or what went wrong at which line.
  //
  // As vLLM does: `arguments` of tool calls, JSON in a string, become values; a list of text parts becomes one string
  // (joined by line ends) where the template takes only strings, and a string a list where it takes only lists.
  //
  // Templates print objects with their keys in the given order, so objects that came from a user (tools above all)
  // should be kept in an ordered_json; the other form has its keys sorted.
  ChatPrompt render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                    const nlohmann::ordered_json& kwargs, const std::vector<std::string>& specials,
                    const ChatOptions& options) const;
  ChatPrompt render(const nlohmann::json& messages, const nlohmann::json& tools, const nlohmann::json& kwargs,
                    const std::vector<std::string>& specials, const ChatOptions& options) const;

 private:
  struct Free {
    void operator()(SpyreTextTemplate* chat_template) const;
  };
  using Handle = std::unique_ptr<SpyreTextTemplate, Free>;
  static Handle compile(std::string_view source, std::string_view bos, std::string_view eos);
  void probe_content();

  Handle handle_, tool_use_;  // tool_use_ may be empty
  // What `content` may be for the template, found by trying.
  bool takes_strings_ = true, takes_parts_ = false;
};

// The template of a model folder: chat_template.jinja, or `chat_template` of tokenizer_config.json (a text, or a list
// of named ones, of which "default" and "tool_use" are taken). None where there is none.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& folder);
// tokenizer.chat_template of a GGUF file, and tokenizer.chat_template.tool_use.
std::optional<ChatTemplate> load_chat_template(const formats::GgufFile& file);

// The texts of a tokenizer's special tokens, for render().
std::vector<std::string> special_texts(const Tokenizer& tokenizer);

// The ids of a rendered prompt. In a chat the template alone adds special tokens, so there is one BOS where it writes
// one, and never a second.
std::vector<TokenId> encode(const Tokenizer& tokenizer, const ChatPrompt& prompt);

}  // namespace spyre::text
