#include <cstddef>
#include <cstdint>

#include "engine/fuzz_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spyre::engine::fuzz_recording({reinterpret_cast<const char*>(data), size});
  return 0;
}
