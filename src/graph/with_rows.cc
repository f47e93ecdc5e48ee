#include "graph/with_rows.h"

namespace spyre::graph {

Graph with_rows(Graph graph, int64_t rows) {
  for (Value& value : graph.values) {
    for (Dim& dim : value.type.dims) {
      if (dim.rows) dim.extent = rows;
    }
  }
  return graph;
}

}  // namespace spyre::graph
