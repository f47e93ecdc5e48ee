#include "text/detokenizer.h"

#include <vector>

#include "text/rust_result.h"

namespace spyre::text {

namespace {

std::string_view text_of(const SpyreTextView& view) {
  return {reinterpret_cast<const char*>(view.data), view.size};
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special) {
  SpyreTextStream* stream = nullptr;
  call([&](SpyreTextBytes* e) { return spyre_text_stream_new(tokenizer.handle_.get(), skip_special, &stream, e); });
  stream_.reset(stream);
}

Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

void Detokenizer::Free::operator()(SpyreTextStream* stream) const {
  spyre_text_stream_free(stream);
}

void Detokenizer::follow(std::span<const TokenId> prompt) {
  const std::vector<uint32_t> ids(prompt.begin(), prompt.end());  // a negative one is in no vocabulary
  call([&](SpyreTextBytes* e) { return spyre_text_stream_follow(stream_.get(), ids.data(), ids.size(), e); });
}

std::string_view Detokenizer::push(TokenId id) {
  if (id < 0) throw_error(ErrorCode::kInvalidArgument, "token id {} is negative", id);
  SpyreTextView view{};
  call([&](SpyreTextBytes* e) { return spyre_text_stream_push(stream_.get(), static_cast<uint32_t>(id), &view, e); });
  return text_of(view);
}

std::string_view Detokenizer::finish() {
  SpyreTextView view{};
  call([&](SpyreTextBytes* e) { return spyre_text_stream_finish(stream_.get(), &view, e); });
  return text_of(view);
}

}  // namespace spyre::text
