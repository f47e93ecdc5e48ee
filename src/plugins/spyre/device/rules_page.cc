#include <fmt/format.h>

#include "plugins/spyre/device/rules.h"

namespace spyre::device {

std::string rules_page() {
  std::string page = R"(# The card's lowering rules

Written from the table in `src/plugins/spyre/device/rules.cc` by the test `RulesPage.IsUpToDate`; after a change, run it with
`SPYRE_REGENERATE=1` in the environment.

A program that breaks a rule is refused by its number, with the numbers at hand and the remedy; nothing is repaired in
silence. Each rule has a positive and a negative test that carries its number. The confidence says how sure the reason is:
H stated by the card's owner or by several sources, M one good source, L second hand, INF worked out here. A number that is
missing belonged to a rule that nothing here can break.

Programs meet a rule when they are compiled: operators and shapes first, then layouts, then every call of a card function that
the finished plan makes, attention's programs included. L-32 to L-36 speak of functions that no operator of the graph lowers to
(prod, topk, pad, flip, slice_scatter): only single calls meet them. L-28 and L-29 wait for staggered tensors, which no pass makes.

)";
  for (const RuleInfo& r : all_rules()) {
    page += fmt::format("## {} {}\n\n- Refused: {}.\n- Why: {}. ({})\n- Instead: {}\n\n", r.number, r.title, r.refused,
                        r.reason, r.confidence, r.remedy);
  }
  page.pop_back();
  return page;
}

}  // namespace spyre::device
