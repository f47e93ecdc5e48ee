#include "text/special_guard.h"

#include <algorithm>

namespace spyre::text {

using Json = nlohmann::ordered_json;

SpecialGuard::SpecialGuard(const std::vector<std::string>& specials) {
  for (const std::string& special : specials) {
    if (special.empty()) continue;
    by_first_byte_[static_cast<unsigned char>(special[0])].push_back(special);
    empty_ = false;
  }
  for (auto& group : by_first_byte_) {
    std::sort(group.begin(), group.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }
}

size_t SpecialGuard::longest_at(std::string_view text, size_t at, size_t end) const {
  for (const std::string& special : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (special.size() <= end - at && text.compare(at, special.size(), special) == 0) return special.size();
  }
  return 0;
}

void SpecialGuard::mark(std::string& text) const {
  for (size_t at = text.find(kMarkText); at != std::string::npos; at = text.find(kMarkText, at)) {
    text.erase(at, kMarkText.size());  // a user's own: it must not pass for one of ours
  }
  if (empty_) return;
  std::string out;
  size_t done = 0;
  // Overlapping ones, too: when the first is not read as a token, the second could be.
  for (size_t at = 0; at < text.size(); ++at) {
    if (longest_at(text, at, text.size()) == 0) continue;
    out.append(text, done, at - done).append(kMarkText);
    done = at;
  }
  if (done == 0 && out.empty()) return;
  text = out.append(text, done);
}

void SpecialGuard::mark(Json& value) const {
  if (value.is_string()) {
    mark(value.get_ref<std::string&>());
  } else if (value.is_array()) {
    for (Json& item : value) mark(item);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      if (key != "role" || !member.is_string()) mark(member);
    }
  }
}

ChatPrompt SpecialGuard::cut(std::string_view rendered) const {
  std::string text;
  std::vector<size_t> marks;  // positions in |text|, ascending
  for (size_t from = 0;;) {
    const size_t at = rendered.find(kMarkText, from);
    text.append(rendered.substr(from, at - from));
    if (at == std::string_view::npos) break;
    if (marks.empty() || marks.back() != text.size()) marks.push_back(text.size());
    from = at + kMarkText.size();
  }
  ChatPrompt prompt;
  if (marks.empty()) {
    if (!text.empty()) prompt.pieces.push_back({std::move(text), true});
    return prompt;
  }
  size_t parsed_from = 0, stretch = 0;  // the open piece that is parsed; where the text after the last token begins
  auto next_mark = marks.begin();
  const auto end_stretch = [&](size_t end) {
    const auto in_stretch = std::lower_bound(marks.begin(), marks.end(), stretch);
    if (in_stretch == marks.end() || *in_stretch >= end) return;
    if (parsed_from < stretch) prompt.pieces.push_back({text.substr(parsed_from, stretch - parsed_from), true});
    prompt.pieces.push_back({text.substr(stretch, end - stretch), false});
    parsed_from = end;
  };
  for (size_t at = 0; at < text.size();) {
    while (next_mark != marks.end() && *next_mark < at) ++next_mark;
    // What crosses a mark is no token of the template: its end was written by a user.
    const size_t end = next_mark == marks.end() ? text.size() : *next_mark;
    const size_t length = longest_at(text, at, end);
    if (length == 0) {
      ++at;
      continue;
    }
    end_stretch(at);
    at += length;
    stretch = at;
  }
  end_stretch(text.size());
  if (parsed_from < text.size()) prompt.pieces.push_back({text.substr(parsed_from), true});
  return prompt;
}

}  // namespace spyre::text
