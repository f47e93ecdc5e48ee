// A conversation at a terminal: the turns so far, and what a line of input does to them. Knows neither a model nor a
// terminal: it is given functions for both. Single-threaded.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace spyre::cli {

// A line that nobody can say: it is not UTF-8. The conversation is as it was.
class NotText : public Error {
 public:
  NotText() : Error(ErrorCode::kInvalidArgument, "this is not UTF-8") {}
};

// How an answer ended.
struct ChatReply {
  std::string text;
  bool stopped = false;  // by the user; |text| is what was said until then
  bool cut = false;      // by a limit on its length
};

class ChatSession {
 public:
  using Messages = nlohmann::ordered_json;  // a list as in the OpenAI API
  // Answers a conversation, showing the text as it comes. An Error says why there is no answer.
  using Answer = std::function<ChatReply(const Messages& messages)>;
  // Shows a line that is no answer.
  using Note = std::function<void(std::string_view line)>;

  ChatSession(Answer answer, Note note) : answer_(std::move(answer)), note_(std::move(note)) {}

  // The message that stands before all turns; empty: none. The turns stay.
  void set_system(std::string text) { system_ = std::move(text); }

  // One line of input: a command (/help, /reset, /system TEXT, /quit), or what the user says, which is answered; a line
  // that begins with "//" is said without its first slash. False: the user wants to go.
  //
  // A stopped answer stays in the conversation as far as it was said. What could not be answered is taken back, and the
  // Error comes out; of a line that is not text, NotText.
  bool take(std::string_view line);

  // The system message and the turns.
  Messages messages() const;
  size_t turns() const { return turns_.size(); }

 private:
  bool command(std::string_view line);
  void say(std::string text);

  Answer answer_;
  Note note_;
  std::string system_;
  Messages turns_ = Messages::array();
};

}  // namespace spyre::cli
