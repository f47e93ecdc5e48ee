// The text of a growing list of tokens, piece by piece, for streaming.
//
// push() gives what no later token can change; the rest is held: the bytes of an unfinished character, a run of byte
// tokens (one bad byte makes the whole run U+FFFD), a token whose text depends on being the last. All pieces joined are
// Tokenizer::decode() of the same ids, byte for byte, and each piece is whole UTF-8. The cost of a push does not grow
// with the number of tokens before it.
//
// A Detokenizer belongs to one thread at a time. It may outlive its Tokenizer.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "text/tokenizer.h"

struct SpyreTextStream;

namespace spyre::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  // What is pushed next follows the tokens of a prompt, so that no part of it stands at the beginning of a text: a
  // SentencePiece decoder leaves its first space, and WordPiece one puts one before it. Nothing of the prompt is given.
  // Only before the first push().
  void follow(std::span<const TokenId> prompt);

  // The text that `id` makes certain, maybe empty. The view is valid until the next call.
  std::string_view push(TokenId id);

  // The rest. Afterwards the object is ready for another list of tokens.
  std::string_view finish();

 private:
  struct Free {
    void operator()(SpyreTextStream* stream) const;
  };
  std::unique_ptr<SpyreTextStream, Free> stream_;
};

}  // namespace spyre::text
