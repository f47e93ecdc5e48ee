// Placing buffers in the scratchpad: which of those that may live there do, and at what address. One address serves all
// cores, so that this is one strip of memory over time; nothing is evicted or moved.
//
// Two solvers, as the card's own stack has several: first fit in order of worth, and annealing over the order. Both are
// deterministic. Neither shares code with the exhaustive reference of the test.
#pragma once

#include <cstdint>
#include <vector>

namespace spyre::compiler {

struct LxRequest {
  int64_t bytes = 0;            // of a core
  int32_t first = 0, last = 0;  // operations: written, read last; both included
  int64_t worth = 0;            // bytes of device memory traffic that residency saves
  // Requests whose address this one may take over in place: read last by the operation that writes this one, which
  // works element by element, and at least as large.
  std::vector<int32_t> replaces;
};

enum class LxSolver : uint8_t { kFirstFit, kAnnealing };

// Addresses, parallel to |requests|: multiples of 128 within |capacity|, -1 = no room. Requests that live at the same
// time never share a byte, but for a replacement at exactly the address of what it replaces.
std::vector<int64_t> place_lx(const std::vector<LxRequest>& requests, int64_t capacity,
                              LxSolver solver = LxSolver::kFirstFit);

// The worth of what |addresses| places.
int64_t placed_worth(const std::vector<LxRequest>& requests, const std::vector<int64_t>& addresses);

}  // namespace spyre::compiler
