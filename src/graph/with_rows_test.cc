#include "graph/with_rows.h"

#include <gtest/gtest.h>

#include <string>

#include "graph/text.h"

namespace spyre::graph {
namespace {

std::string text_of(const std::string& rows) {
  return "graph g {\n  input %x : f16[@" + rows + ",12]\n  input %ids : i32[@" + rows +
         "]\n  param %t : f16[9,12]\n  param %w : f16[12,40]\n  %e = gather_rows(%t, %ids)\n  %s = add(%x, %e)\n"
         "  %y = matmul(%s, %w) {dtype=\"\"}\n  %h = reshape(%y) {shape=[-1,5,8]}\n  return %h, %s\n}\n";
}

TEST(WithRows, IsWhatTheSameCodeBuildsForThatNumber) {
  for (const int64_t rows : {1, 5, 300}) {
    const Graph made = with_rows(parse(text_of("5")), rows);
    verify(made);
    EXPECT_EQ(canonical_text(made), canonical_text(parse(text_of(std::to_string(rows)))));
  }
}

TEST(WithRows, LeavesTheOriginalAndOtherExtents) {
  const Graph graph = parse(text_of("9"));  // as many rows as the table has
  const Graph made = with_rows(graph, 4);
  EXPECT_EQ(canonical_text(graph), canonical_text(parse(text_of("9"))));
  EXPECT_EQ(made.type(made.parameters[0]).to_string(), "f16[9,12]");
  EXPECT_EQ(made.type(made.inputs[0]).to_string(), "f16[@4,12]");
}

}  // namespace
}  // namespace spyre::graph
