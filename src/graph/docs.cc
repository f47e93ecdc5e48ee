#include "graph/docs.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op_def.h"
#include "graph/text.h"

namespace spyre::graph {
namespace {

constexpr std::string_view kIntroduction = R"(# Operators of the graph IR

Written from the table in `src/graph/ops/` by the test `OperatorsPage.IsUpToDate`; after a change, run it with
`SPYRE_REGENERATE=1` in the environment (`SPYRE_REGENERATE=1 ./run test OperatorsPage`).

A graph is a list of operators over values, each defined once and before its use. A type is a tensor `f16[@64,576]` (at
most 6 dimensions; `@` marks the *rows* dimension, the tokens of a step), a KV cache `kv f16[3,64]` (kv heads, head size)
or the step's `batch`. Rows are independent of each other in every operator except `attention`. Shapes are static.

Each value has a storage dtype. In exact mode it is rounded to that dtype once, and sums are taken in the orders of
[numerics.md](numerics.md); in fp32 mode nothing is rounded. The text form is described in `src/graph/text.h`.

A constraint has a number. `matmul C3` is the same thing here, in the message of the check and in the name of its negative
test, `TEST(Matmul, C3_...)`. A violation is an `invalid argument` that names the constraint and the numbers. Every operator
also checks the number of its operands and that each attribute is there and of its kind.
)";

std::string attribute_row(const AttrDef& def) {
  const std::string default_value = def.default_value ? "default `" + to_string(*def.default_value) + "`" : "required";
  return fmt::format("- `{}`: {}, {}\n", def.name, to_string(def.kind), default_value);
}

// Operators that differ only in their scalar function.
bool same_section(const OpDef& a, const OpDef& b) {
  const auto same_name = [](const AttrDef& x, const AttrDef& y) { return x.name == y.name; };
  return a.infer == b.infer && a.operands == b.operands &&
         std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(), same_name);
}

std::string section(const OpDef& def) {
  std::string text = fmt::format("\n### {0}\n\n`{0}({1})`, family {2}: {3}.\n\n", def.name, def.operands,
                                 to_string(def.family), def.summary);
  for (const AttrDef& attribute : def.attributes) text += attribute_row(attribute);
  if (!def.attributes.empty()) text += '\n';
  for (const Constraint& constraint : def.constraints) {
    text += fmt::format("- **{}** {}\n", constraint.number, constraint.text);
  }
  return text;
}

// The members of a family that share operands, attributes and constraints: one section with a table.
std::string family_section(std::span<const OpDef* const> members) {
  const OpDef& first = *members.front();
  std::string text =
      fmt::format("\n### The {} family\n\n| operator | result |\n| --- | --- |\n", to_string(first.family));
  for (const OpDef* def : members) {
    std::string summary(def->summary);
    for (size_t at = 0; (at = summary.find('|', at)) != std::string::npos; at += 2) summary.insert(at, "\\");
    text += fmt::format("| `{}({})` | {} |\n", def->name, def->operands, summary);
  }
  text += '\n';
  for (const AttrDef& attribute : first.attributes) text += attribute_row(attribute);
  for (const Constraint& constraint : first.constraints) {
    text += fmt::format("- **{}** {}\n", constraint.number, constraint.text);
  }
  return text;
}

}  // namespace

std::string operators_page() {
  std::string text(kIntroduction);
  const std::span<const OpDef* const> ops = all_ops();
  for (size_t i = 0; i < ops.size();) {
    size_t end = i + 1;
    while (end < ops.size() && same_section(*ops[i], *ops[end])) ++end;
    text += end - i > 1 ? family_section(ops.subspan(i, end - i)) : section(*ops[i]);
    i = end;
  }
  return text;
}

}  // namespace spyre::graph
