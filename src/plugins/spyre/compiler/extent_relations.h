// What operators demand of the card extents, as relations between dimensions: collected once, solved by assign_extents,
// checked by verify_extents.
//
// A node is one dimension of one value, or a pseudo dimension (half of a rotary head, the values' head of a cache).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/compiler/layouts.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {

struct ExtentRelations {
  struct Tie {  // the same axis
    int a = 0, b = 0;
    int32_t op = 0;
  };
  struct Part {  // |part| is the range of |whole| from |start| on, both in the stick
    int whole = 0, part = 0;
    int64_t start = 0;
    int32_t op = 0;
    device::Rule rule = device::Rule::kSliceOffStick;
  };
  struct Units {  // |whole| is units of the extent of |unit|, both in the stick
    int whole = 0, unit = 0;
    bool halves = false;  // two units: the halves of a rotary head, each whole sticks
    int32_t op = 0;
  };
  struct Filled {  // whole sticks
    int node = 0;
    int32_t op = 0;
  };
  struct Heads {  // keys and values: whole sticks of one width
    int key = 0, value = 0;
    int32_t op = 0;
  };

  std::vector<int64_t> extent;        // per node, logical
  std::vector<std::vector<int>> dim;  // [value][dimension] -> node
  std::vector<Tie> ties;
  std::vector<Part> parts;
  std::vector<Units> units;
  std::vector<Filled> filled;
  std::vector<Heads> heads;
};

ExtentRelations collect_relations(const graph::Graph& graph, const Layouts& sticks);

}  // namespace spyre::compiler
