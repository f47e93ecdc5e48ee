#include "graph/docs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace spyre::graph {
namespace {

TEST(OperatorsPage, IsUpToDate) {
  const std::filesystem::path path = std::filesystem::path(SPYRE_TEST_DATA) / "../../docs/ops.md";
  if (std::getenv("SPYRE_REGENERATE") != nullptr) std::ofstream(path) << operators_page();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), operators_page())
      << "docs/ops.md differs from the operator table; SPYRE_REGENERATE=1 ./run test OperatorsPage writes it again";
}

}  // namespace
}  // namespace spyre::graph
