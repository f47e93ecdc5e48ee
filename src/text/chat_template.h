// Chat templates: messages to the text of a prompt, in Hugging Face's dialect of Jinja, rendered by rust/text.
//
// A ChatTemplate does not change once made and may be used from any number of threads. Templates come from model files
// and run user data: both are hostile. Rendering is bounded (steps, recursion, output bytes).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
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
  // |bos|, |eos| are the texts of these tokens for the template's own variables. Throws Error(kUnsupported) naming the
  // line when the template does not parse.
  ChatTemplate(std::string_view source, std::string_view bos, std::string_view eos);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // |messages| is an array of objects as in the OpenAI API; |tools| an array or null; |kwargs| an object of further
  // variables (chat_template_kwargs) or null. |specials| are the texts that must not be read as tokens in what a user
  // wrote. Throws Error(kInvalidArgument): the text of raise_exception(), or what went wrong at which line.
  ChatPrompt render(const nlohmann::json& messages, const nlohmann::json& tools, const nlohmann::json& kwargs,
                    const std::vector<std::string>& specials, const ChatOptions& options) const;

 private:
  struct Free {
    void operator()(SpyreTextTemplate* chat_template) const;
  };
  std::unique_ptr<SpyreTextTemplate, Free> handle_;
};

// The ids of a rendered prompt: one BOS where the model wants one, never two.
std::vector<TokenId> encode(const Tokenizer& tokenizer, const ChatPrompt& prompt);

}  // namespace spyre::text
