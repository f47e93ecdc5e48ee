// The answer to what lies in whose stick: one for a graph, made by propagate_layouts.
#pragma once

#include <cstdint>
#include <vector>

namespace spyre::compiler {

// Which dimension of each value lies in the stick, and where a value must be re-laid for a consumer.
struct Layouts {
  std::vector<int> stick;  // per value: dimension, or -1 = sparse (one element per stick) or scalar
  struct Relay {
    int32_t op = 0;  // consumer
    int32_t operand = 0;
    int to_stick = 0;
    bool operator==(const Relay&) const = default;
  };
  std::vector<Relay> relays;
};

}  // namespace spyre::compiler
