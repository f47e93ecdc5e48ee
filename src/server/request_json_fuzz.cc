#include <cstddef>
#include <cstdint>

#include "server/testing/fuzz_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spyre::server::fuzz_request_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
