// libFuzzer entry: parse() must refuse any bytes with an Error, and what it accepts must survive print and parse.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "graph/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spyre::graph;  // NOLINT: one function
  Graph graph;
  try {
    graph = parse({reinterpret_cast<const char*>(data), size});
  } catch (const spyre::Error&) {
    return 0;
  }
  const std::string text = print(graph);
  const Graph again = parse(text);
  if (print(again) != text || canonical_text(again) != canonical_text(graph)) std::abort();
  return 0;
}
