#include "cli/chat_session.h"

#include "base/error.h"

namespace spyre::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset         forget the conversation\n"
    "/system TEXT   give the model these instructions from now on; without TEXT: none\n"
    "/help          this\n"
    "/quit          leave (Ctrl-D, too)\n"
    "Ctrl-C stops an answer and keeps what was said. A line that begins with // is said without its first slash.";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The JSON library looks at what it writes.
bool is_utf8(std::string_view text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

bool ChatSession::take(std::string_view line) {
  const std::string_view text = trimmed(line);
  if (text.empty()) return true;
  if (!is_utf8(text)) throw NotText();
  if (text.starts_with("//")) {
    say(std::string(text.substr(1)));
  } else if (text.starts_with('/')) {
    return command(text);
  } else {
    if (line.ends_with('\r')) line.remove_suffix(1);
    say(std::string(line));
  }
  return true;
}

bool ChatSession::command(std::string_view line) {
  const size_t space = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view name = line.substr(0, space), rest = trimmed(line.substr(space));
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/reset") {
    turns_ = Messages::array();
    note_("The conversation is forgotten.");
  } else if (name == "/system") {
    set_system(std::string(rest));
    note_(rest.empty() ? "No instructions from now on." : "The model has its instructions.");
  } else if (name == "/help") {
    note_(kHelp);
  } else {
    note_(fmt::format("There is no command {}; /help lists them.", name));
  }
  return true;
}

void ChatSession::say(std::string text) {
  turns_.push_back({{"role", "user"}, {"content", std::move(text)}});
  ChatReply reply;
  try {
    reply = answer_(messages());
  } catch (...) {
    turns_.erase(turns_.size() - 1);
    throw;
  }
  if (reply.text.empty() && reply.stopped) {
    turns_.erase(turns_.size() - 1);  // nothing was said: as if nothing was asked
    return;
  }
  turns_.push_back({{"role", "assistant"}, {"content", std::move(reply.text)}});
  if (reply.cut) note_("[cut at the limit on its length: --max-tokens, or the model's context]");
}

ChatSession::Messages ChatSession::messages() const {
  Messages out = Messages::array();
  if (!system_.empty()) out.push_back({{"role", "system"}, {"content", system_}});
  for (const auto& turn : turns_) out.push_back(turn);
  return out;
}

}  // namespace spyre::cli
