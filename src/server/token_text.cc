#include "server/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spyre::server {
namespace {

constexpr double kLowestLogprob = -9999.0;

// Bytes of the character that starts at |at|: 0 when there is none, with |bad| the bytes that are to be replaced.
size_t character_at(std::string_view s, size_t at, size_t& bad) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
  const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    const bool fits =
        at + i < s.size() && byte(at + i) >= (i == 1 ? low : 0x80) && byte(at + i) <= (i == 1 ? high : 0xbf);
    if (!fits) {
      bad = i;
      return 0;
    }
  }
  return length;
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    size_t bad = 0;
    if (const size_t length = character_at(bytes, at, bad)) {
      out += bytes.substr(at, length);
      at += length;
    } else {
      out += "\xef\xbf\xbd";
      at += bad;
    }
  }
  return out;
}

int64_t count_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::string TokenText::bytes(int32_t id) const {
  if (!tokenizer_) return "";
  try {
    return tokenizer_->token_bytes(id);
  } catch (const Error&) {
    return "";
  }
}

std::string TokenText::text(int32_t id) const {
  return as_ids_ ? fmt::format("token_id:{}", id) : valid_utf8(bytes(id));
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? std::max<double>(logprob, kLowestLogprob) : kLowestLogprob;
}

void CompletionLogprobs::add_token(int32_t id, int64_t& offset) {
  tokens_.push_back(text_.text(id));
  offsets_.push_back(offset);
  offset += count_characters(text_.bytes(id));
}

void CompletionLogprobs::add_first_prompt_token(int32_t id, int64_t& offset) {
  add_token(id, offset);
  logprobs_.push_back(nullptr);
  tops_.push_back(nullptr);
}

void CompletionLogprobs::add(const runner::TokenLogprob& token, int64_t& offset) {
  add_token(token.token, offset);
  logprobs_.push_back(finite_logprob(token.logprob));
  // The token itself, then the most probable ones; two tokens of one text are one key, the more probable counts.
  Json top = Json::object();
  top[text_.text(token.token)] = finite_logprob(token.logprob);
  int32_t left = top_;
  for (const auto& [id, logprob] : token.top) {
    if (left >= 0 && left-- == 0) break;
    std::string key = text_.text(id);
    const double value = finite_logprob(logprob);
    const auto known = top.find(key);
    if (known == top.end()) {
      top[key] = value;
    } else {
      *known = std::max(known->get<double>(), value);
    }
  }
  tops_.push_back(std::move(top));
}

Json CompletionLogprobs::take() {
  Json out;
  out["text_offset"] = std::move(offsets_);
  out["token_logprobs"] = std::move(logprobs_);
  out["tokens"] = std::move(tokens_);
  out["top_logprobs"] = std::move(tops_);
  return out;
}

namespace {

Json chat_token(const TokenText& text, int32_t id, float logprob) {
  Json out;
  out["token"] = text.text(id);
  out["logprob"] = finite_logprob(logprob);
  Json bytes = Json::array();
  for (const char c : text.bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  out["bytes"] = std::move(bytes);
  return out;
}

}  // namespace

Json chat_logprob(const TokenText& text, const runner::TokenLogprob& token, int32_t top) {
  Json out = chat_token(text, token.token, token.logprob);
  Json tops = Json::array();
  int32_t left = top;
  for (const auto& [id, logprob] : token.top) {
    if (left >= 0 && left-- == 0) break;
    tops.push_back(chat_token(text, id, logprob));
  }
  out["top_logprobs"] = std::move(tops);
  return out;
}

Json prompt_logprobs_json(const TokenText& text, const std::vector<runner::TokenLogprob>& logprobs) {
  Json out = Json::array({nullptr});
  for (const runner::TokenLogprob& token : logprobs) {
    Json entry = Json::object();
    const auto add = [&](int32_t id, float logprob, int32_t rank) {
      Json value;
      value["logprob"] = finite_logprob(logprob);
      value["rank"] = rank;
      value["decoded_token"] = text.text(id);
      entry[std::to_string(id)] = std::move(value);
    };
    add(token.token, token.logprob, token.rank);
    int32_t rank = 0;
    for (const auto& [id, logprob] : token.top) {
      ++rank;
      if (id != token.token) add(id, logprob, rank);
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace spyre::server
