#include <cstdint>

#include "formats/fuzz_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spyre::formats::fuzz_config(std::as_bytes(std::span(data, size)));
  return 0;
}
