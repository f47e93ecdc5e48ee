// Fuzzes the reading of tokenizer.json: any bytes either give an Error or a tokenizer that works and whose stream
// agrees with its one-shot decoding. The Rust library is not instrumented, so the fuzzer sees this side's coverage
// only; a good corpus (tests/data/fuzz/tokenizer_json) matters more than time.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

using spyre::text::TokenId;

void require(bool condition) {
  if (!condition) std::abort();
}

void exercise(const spyre::text::Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse : {false, true}) {
    try {
      const std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = true, .parse_special = parse});
      for (const TokenId id : ids) require(id >= 0 && id < tokenizer.vocab_size());
      spyre::text::Detokenizer detokenizer(tokenizer, !parse);
      std::string streamed;
      for (const TokenId id : ids) streamed += detokenizer.push(id);
      streamed += detokenizer.finish();
      require(streamed == tokenizer.decode(ids, !parse));
      if (!ids.empty()) tokenizer.token_bytes(ids.front());
    } catch (const spyre::Error& e) {
      require(e.code() != spyre::ErrorCode::kInternal);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer =
        spyre::text::Tokenizer::from_json(std::string_view(reinterpret_cast<const char*>(data), size));
    exercise(tokenizer, "Hello, world!  it's 42 <s></s> a\u00e9\u4f60\U0001F600\n\n\t x");
    exercise(tokenizer, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    std::vector<TokenId> all;
    for (TokenId id = 0; id < std::min<TokenId>(tokenizer.vocab_size(), 600); ++id) all.push_back(id);
    spyre::text::Detokenizer detokenizer(tokenizer, false);
    std::string streamed;
    for (const TokenId id : all) streamed += detokenizer.push(id);
    streamed += detokenizer.finish();
    require(streamed == tokenizer.decode(all, false));
  } catch (const spyre::Error& e) {
    require(e.code() != spyre::ErrorCode::kInternal);
    require(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
