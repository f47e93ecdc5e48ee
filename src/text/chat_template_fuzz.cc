// The Rust library is not instrumented; the corpus (tests/data/fuzz/chat_template) matters more than time.
#include <cstddef>
#include <cstdint>

#include "text/fuzz_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spyre::text::fuzz_chat_template({reinterpret_cast<const char*>(data), size});
  return 0;
}
