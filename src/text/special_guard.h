// Keeps the text of special tokens in what a user wrote apart from the tokens that a template writes.
//
// Before rendering, a mark (one character that stands nowhere in the input) is put in front of every place in a user's
// text where a special token's text begins. Marks go through the template as any character does. Afterwards a special
// token's text is the token only where no mark stands in front of it; the marks are dropped.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace spyre::text {

class SpecialGuard {
 public:
  // Without |specials| nothing is marked.
  explicit SpecialGuard(const std::vector<std::string>& specials);

  // Marks every string in |value|, at any depth, but not keys, nor `role`, which templates write into control tokens.
  void mark(nlohmann::ordered_json& value) const;

  // Cuts a rendered text. A piece is plain between two tokens of the template if a mark stands in it, so that it is
  // tokenised as the ordinary text it is; everything else is read as usual.
  ChatPrompt cut(std::string_view rendered) const;

  // U+FDD0, a "noncharacter": Unicode keeps it free for uses like this one, and texts have none. What a user sends of
  // them is dropped.
  static constexpr char32_t kMark = 0xFDD0;
  static constexpr std::string_view kMarkText = "\xEF\xB7\x90";

 private:
  // Bytes of the longest special text that stands at |at| and ends by |end|, or 0.
  size_t longest_at(std::string_view text, size_t at, size_t end) const;
  void mark(std::string& text) const;

  std::array<std::vector<std::string>, 256> by_first_byte_;  // each longest first
  bool empty_ = true;
};

}  // namespace spyre::text
