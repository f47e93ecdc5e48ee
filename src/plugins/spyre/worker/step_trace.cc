#include "plugins/spyre/worker/step_trace.h"

#include <algorithm>

#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/device/step_cost.h"

namespace spyre::worker {
namespace {

using device::DeviceOp;
using device::Program;
using device::TransferTotals;

constexpr const char* kTransfers = "transfers";
constexpr const char* kPrograms = "programs";
constexpr const char* kOps = "device operations";
constexpr const char* kAttention = "attention";

std::map<std::string, TransferTotals> difference(const std::map<std::string, TransferTotals>& after,
                                                 const std::map<std::string, TransferTotals>& before) {
  std::map<std::string, TransferTotals> out;
  for (const auto& [label, now] : after) {
    const auto found = before.find(label);
    TransferTotals delta = now;
    if (found != before.end()) {
      delta.count -= found->second.count;
      delta.card_bytes -= found->second.card_bytes;
      delta.logical_bytes -= found->second.logical_bytes;
    }
    if (delta.count > 0) out.emplace(label, delta);
  }
  return out;
}

}  // namespace

device::TransferCounters difference(const device::TransferCounters& after, const device::TransferCounters& before) {
  return {.to_device = difference(after.to_device, before.to_device),
          .to_host = difference(after.to_host, before.to_host)};
}

// A bundle's time is shared out by what its operations would take alone.
const std::vector<StepTrace::OpSpan>& StepTrace::ops_of(const Program& program) {
  const auto [found, inserted] = known_.try_emplace(&program);
  if (!inserted) return found->second;
  const device::CardPlan& plan = planned_.of(program).plan;
  for (const device::Bundle& bundle : device::bundles_of(program.graph, plan, device::measured_costs())) {
    double alone = 0;
    for (int32_t i = bundle.first; i < bundle.end; ++i) {
      const device::OpWork work = device::work_of(program.graph, plan, static_cast<size_t>(i));
      const double ns = device::estimate_ns(device::measured_costs(), work);
      alone += ns;
      found->second.push_back(
          {plan.ops[i].name, ns, {{"cores", work.cores}, {"read", work.read_bytes}, {"written", work.write_bytes}}});
      if (work.macs > 0) found->second.back().arguments.emplace_back("multiply_adds", work.macs);
    }
    if (alone == 0) continue;
    for (int32_t i = bundle.first; i < bundle.end; ++i) found->second[i].ns *= bundle.time.total() / alone;
  }
  return found->second;
}

void StepTrace::add_transfers(const std::map<std::string, TransferTotals>& totals, const char* direction) {
  for (const auto& [label, t] : totals) {
    const double once = device::transfer_ns(device::measured_costs(), t.card_bytes / t.count);
    const double end = card_ns_ + static_cast<double>(t.count) * once;
    trace_.add(TraceProcess::kCard, kTransfers, std::string(direction) + " " + label, card_ns_, end,
               {{"bytes", t.card_bytes}, {"transfers", t.count}});
    card_ns_ = end;
  }
}

void StepTrace::add_attention(const char* stage, double begin) {
  trace_.add(TraceProcess::kCard, kAttention, std::string("spyre_attn::") + stage, begin, card_ns_);
}

void StepTrace::add_program(const Program& program, const attention::StepTables* tables) {
  const double begin = card_ns_;
  const std::vector<OpSpan>& ops = ops_of(program);
  // What the step's keys add, to each attention of the program alike.
  const auto attends = [](const DeviceOp& op) { return op.name == "attention"; };
  const auto attentions = std::count_if(program.card.ops.begin(), program.card.ops.end(), attends);
  const double keys =
      attentions == 0
          ? 0
          : std::max(0.0, device::estimate_step_ns(program, tables, times_, planned_) - planned_.of(program).ns);
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool attention = attends(program.card.ops[i]), stores = program.card.ops[i].name == "kv_store";
    const double from = card_ns_;
    card_ns_ += ops[i].ns + (attention ? keys / static_cast<double>(attentions) : 0);
    trace_.add(TraceProcess::kCard, kOps, ops[i].name, from, card_ns_, ops[i].arguments);
    if (!attention_spans_) continue;
    if (stores) {
      attention_from_ = from;
      add_attention("reshape_and_cache", from);
    } else if (attention) {
      add_attention("online_softmax", from);
      add_attention("forward", attention_from_);
    }
  }
  trace_.add(TraceProcess::kCard, kPrograms, program.graph.name, begin, card_ns_);
}

void StepTrace::add_card_step(std::span<const device::Launch* const> launches, const attention::StepTables* tables,
                              const device::TransferCounters& moved, int64_t tokens) {
  const double begin = card_ns_;
  add_transfers(moved.to_device, "to card:");
  for (const device::Launch* launch : launches) add_program(*launch->program, tables);
  add_transfers(moved.to_host, "to host:");
  trace_.add(TraceProcess::kCard, "steps", "step", begin, card_ns_, {{"tokens", tokens}});
}

}  // namespace spyre::worker
