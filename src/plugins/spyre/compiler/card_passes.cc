#include "plugins/spyre/compiler/card_passes.h"

#include <array>
#include <chrono>

#include "plugins/spyre/compiler/account_work.h"
#include "plugins/spyre/compiler/assign_extents.h"
#include "plugins/spyre/compiler/card_text.h"
#include "plugins/spyre/compiler/check_calls.h"
#include "plugins/spyre/compiler/check_indirect.h"
#include "plugins/spyre/compiler/divide_matmuls.h"
#include "plugins/spyre/compiler/divide_work.h"
#include "plugins/spyre/compiler/elide_copies.h"
#include "plugins/spyre/compiler/insert_restickify.h"
#include "plugins/spyre/compiler/lower_operators.h"
#include "plugins/spyre/compiler/plan_pool.h"
#include "plugins/spyre/compiler/propagate_layouts.h"
#include "plugins/spyre/compiler/reduce_spans.h"
#include "plugins/spyre/compiler/verify_card_plan.h"
#include "plugins/spyre/compiler/verify_extents.h"
#include "plugins/spyre/compiler/verify_rules.h"

namespace spyre::compiler {
namespace {

constexpr std::array kPasses = {
    CardPass{"verify-rules", verify_rules, "operators"},
    CardPass{"propagate-layouts", propagate_layouts, "edges re-laid"},
    CardPass{"assign-extents", assign_extents, "dimensions padded"},
    CardPass{"verify-extents", verify_extents, "relations"},
    CardPass{"lower-operators", lower_operators, "device operations"},
    CardPass{"insert-restickify", insert_restickify, "restickifies"},
    CardPass{"check-indirect", check_indirect, "operations with an index"},
    CardPass{"elide-copies", elide_copies, "copies dropped"},
    CardPass{"reduce-spans", reduce_spans, "operations split for their span"},
    CardPass{"divide-matmuls", divide_matmuls, "matmuls divided"},
    CardPass{"divide-work", divide_work, "operations on several cores"},
    CardPass{"check-calls", check_calls, "calls of card functions"},
    CardPass{"plan-pool", plan_pool, "buffers placed"},
    CardPass{"account-work", account_work, "operations accounted"},
};

}  // namespace

std::span<const CardPass> card_passes() {
  return kPasses;
}

std::vector<device::CardPassRecord> run_card_passes(CardState& state, const CardPassOptions& options) {
  std::vector<device::CardPassRecord> records;
  records.reserve(kPasses.size());
  for (const CardPass& pass : kPasses) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t count = pass.run(state);
    records.push_back({pass.name, std::chrono::steady_clock::now() - start, count, pass.unit});
    if (options.verify || &pass == &kPasses.back()) verify_card_plan(state, pass.name);
    if (options.dump_after == "all" || options.dump_after == pass.name) options.dump(pass.name, card_text(state));
  }
  return records;
}

}  // namespace spyre::compiler
