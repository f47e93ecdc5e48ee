// The accounts of a model runner that speak of the compiler's passes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plugins/spyre/worker/model_runner.h"

namespace spyre::worker {

using nlohmann::json;

namespace {

struct PassTotals {
  std::chrono::nanoseconds time{0};
  int64_t changed = 0;  // programs that it did something to
  int64_t count = 0;
  std::string unit;
};

}  // namespace

json SpyreModelRunner::passes() const {
  std::map<std::string, PassTotals> totals;
  for (const auto& [key, program] : compiler_.cache()) {
    for (const graph::PassRecord& record : program->passes) {
      PassTotals& t = totals[record.name];
      t.time += record.time;
      t.changed += record.changed;
    }
    for (const device::CardPassRecord& record : program->card_passes) {
      PassTotals& t = totals[std::string(record.name)];
      t.time += record.time;
      t.changed += record.count > 0;
      t.count += record.count;
      t.unit = record.unit;
    }
  }
  json out = json::array();
  for (const std::string& name : compiler::Compiler::pass_names()) {
    const PassTotals& t = totals[name];
    json row = {{"pass", name}, {"ms", static_cast<double>(t.time.count()) / 1e6}, {"programs_changed", t.changed}};
    if (!t.unit.empty()) row["did"] = fmt::format("{} {}", t.count, t.unit);
    out.push_back(std::move(row));
  }
  return out;
}

json SpyreModelRunner::text_after(const std::string& pass) const {
  json out = json::array();
  std::set<std::string> seen;
  for (const Unit& unit : parts_.body().units(token_ladder_.back())) {
    if (!seen.insert(graph::canonical_text(unit.graph) + unit.boundary.axes.to_string()).second) continue;
    out.push_back({{"graph", unit.graph.name}, {"text", compiler_.text_after(unit.graph, pass, unit.boundary)}});
  }
  return out;
}

}  // namespace spyre::worker
