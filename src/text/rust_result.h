// What the C ABI of rust/text returns, as C++: owned buffers freed by scope, and failures as Error.
#pragma once

#include <string>

#include "base/error.h"
#include "spyre_text.h"

namespace spyre::text {

struct RustBytes : SpyreTextBytes {
  RustBytes() : SpyreTextBytes{nullptr, 0} {}
  RustBytes(const RustBytes&) = delete;
  RustBytes& operator=(const RustBytes&) = delete;
  ~RustBytes() { spyre_text_bytes_free(this); }
  std::string str() const { return {reinterpret_cast<const char*>(data), size}; }
};

struct RustIds : SpyreTextIds {
  RustIds() : SpyreTextIds{nullptr, 0} {}
  RustIds(const RustIds&) = delete;
  RustIds& operator=(const RustIds&) = delete;
  ~RustIds() { spyre_text_ids_free(this); }
};

inline ErrorCode code_of(int kind) {
  switch (kind) {
    case kSpyreTextInvalidArgument:
      return ErrorCode::kInvalidArgument;
    case kSpyreTextCorruptData:
      return ErrorCode::kCorruptData;
    case kSpyreTextUnsupported:
      return ErrorCode::kUnsupported;
    case kSpyreTextResourceExhausted:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kInternal;
  }
}

// Runs an entry point, whose last argument is where it writes its message.
template <typename F>
void call(F&& entry) {
  RustBytes message;
  const int kind = entry(&message);
  if (kind != kSpyreTextOk) throw Error(code_of(kind), message.str());
}

inline const uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

}  // namespace spyre::text
