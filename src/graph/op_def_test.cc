#include "graph/op_def.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"

namespace spyre::graph {
namespace {

TEST(OpDef, NamesAreUniqueAndDefinitionsComplete) {
  std::set<std::string_view> names;
  for (const OpDef* def : all_ops()) {
    EXPECT_TRUE(names.insert(def->name).second) << def->name;
    EXPECT_EQ(find_op(def->name), def);
    EXPECT_FALSE(def->summary.empty()) << def->name;
    EXPECT_FALSE(def->constraints.empty()) << def->name;
    EXPECT_NE(def->infer, nullptr);
    EXPECT_NE(def->evaluate, nullptr);
    EXPECT_TRUE(std::is_sorted(def->attributes.begin(), def->attributes.end(), [](const AttrDef& a, const AttrDef& b) {
      return a.name < b.name;
    })) << def->name;
    for (size_t i = 0; i < def->constraints.size(); ++i) {
      EXPECT_EQ(def->constraints[i].number, "C" + std::to_string(i + 1)) << def->name;
    }
  }
}

// "rms_norm" -> "RmsNorm"; a family that shares a file shares a suite.
std::string suite_of(const OpDef& def) {
  if (def.family == OpFamily::kBinary) return "Binary";
  if (def.family == OpFamily::kReduce) return "Reduce";
  if (def.family == OpFamily::kUnary && def.attributes.empty()) return "Unary";
  std::string suite;
  bool upper = true;
  for (const char c : def.name) {
    if (c != '_') suite += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return suite;
}

// The fourth place of a constraint's number: TEST(Matmul, C3_InnerExtent).
TEST(OpDef, EveryConstraintHasANegativeTestOfItsName) {
  std::set<std::string> tests;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.GetTestInfo(j)->name();
      tests.insert(std::string(suite.name()) + "." + name.substr(0, name.find('_')));
    }
  }
  for (const OpDef* def : all_ops()) {
    for (const Constraint& constraint : def->constraints) {
      const std::string expected = suite_of(*def) + "." + std::string(constraint.number);
      EXPECT_TRUE(tests.contains(expected)) << "no test " << expected << "_... for " << def->name;
    }
  }
}

TEST(OpDef, AnUnknownNameGetsNearOnes) {
  try {
    op_named("rmsnorm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown operator 'rmsnorm'; did you mean rms_norm");
  }
  EXPECT_EQ(find_op("conv"), nullptr);
}

}  // namespace
}  // namespace spyre::graph
