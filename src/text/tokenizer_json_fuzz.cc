// The Rust library is not instrumented, so the fuzzer sees this side's coverage only; a good corpus
// (tests/data/fuzz/tokenizer_json) matters more than time.
#include <cstddef>
#include <cstdint>

#include "text/fuzz_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spyre::text::fuzz_tokenizer_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
