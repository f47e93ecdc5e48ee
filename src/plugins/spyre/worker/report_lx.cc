// The account of the scratchpad, as JSON: of the programs of the smallest and the largest token bucket, and of
// attention in both layouts of the cache. Planned when it is asked for.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "plugins/spyre/compiler/attention_program.h"
#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/worker/model_runner.h"

namespace spyre::worker {
namespace {

using attention::KvLayout;
using nlohmann::json;

int64_t traffic(const device::CardPlan& plan) {
  int64_t bytes = 0;
  for (const device::DeviceOp& op : plan.ops) bytes += op.read_bytes + op.write_bytes;
  return bytes;
}

// Operations that write each buffer first and use it last, of it and its views.
std::vector<std::pair<int, int>> lives(const device::CardPlan& plan) {
  std::vector<std::pair<int, int>> lives(plan.buffers.size(), {-1, -1});
  for (int i = 0; i < static_cast<int>(plan.ops.size()); ++i) {
    for (const std::vector<int32_t>* list : {&plan.ops[i].inputs, &plan.ops[i].outputs}) {
      for (const int32_t b : *list) {
        if (b < 0) continue;
        auto& [first, last] = lives[plan.buffers[b].view ? plan.buffers[b].base : b];
        if (first < 0) first = i;
        last = i;
      }
    }
  }
  return lives;
}

json buffers_of(const device::CardPlan& plan, const graph::Graph& graph) {
  const std::vector<std::pair<int, int>> live = lives(plan);
  json out = json::array();
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const device::CardBuffer& buffer = plan.buffers[b];
    if (buffer.view) continue;
    json entry = {{"value", buffer.value < 0 ? "" : graph.value(buffer.value).name},
                  {"bytes", buffer.spec.card_bytes()},
                  {"verdict", device::to_string(buffer.lx.reason)},
                  {"from_op", live[b].first},
                  {"to_op", live[b].second}};
    if (buffer.lx.resident()) {
      entry["address"] = buffer.lx.address;
      entry["bytes_per_core"] = buffer.lx.bytes_per_core;
    } else if (buffer.lx.op >= 0) {
      entry["because_of"] = plan.ops[buffer.lx.op].name;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

json program_entry(const device::Program& program, int64_t bucket) {
  device::CardPlan plan = program.card;
  const int64_t before = traffic(plan);
  compiler::plan_lx(plan);
  device::CardPlan moved = program.card;
  compiler::plan_lx(moved, {.relayout = true});
  return {{"graph", program.graph.name},
          {"tokens", bucket},
          {"peak_bytes_per_core", plan.lx.peak_bytes},
          {"candidates", plan.lx.candidates},
          {"resident", plan.lx.resident},
          {"device_memory_bytes", before},
          {"saved_bytes", plan.lx.saved_bytes},
          {"measured_us", device::program_ns(program.graph, plan, device::measured_costs()) / 1000},
          {"with_relayouts",
           {{"candidates", moved.lx.candidates},
            {"resident", moved.lx.resident},
            {"copies", moved.lx_copies.size()},
            {"saved_bytes", moved.lx.saved_bytes},
            {"measured_us", device::program_ns(program.graph, moved, device::measured_costs()) / 1000}}},
          {"buffers", buffers_of(plan, program.graph)}};
}

// "8 of 8", or why not: the verdict of the page gathered first.
std::string residency(const compiler::AttentionProgram& program, const char* page, int64_t resident) {
  const int64_t pages = program.pages.gathers / 2;
  if (resident > 0) return fmt::format("{} of {} resident", resident, pages);
  const auto found = std::find(program.names.begin(), program.names.end(), page);
  return std::string(device::to_string(program.plan.buffers[found - program.names.begin()].lx.reason));
}

json attention_entry(const compiler::AttentionShape& shape, const attention::Variant& variant,
                     const compiler::AttentionOptions& options) {
  const compiler::AttentionProgram program = compiler::attention_program(shape, variant, options);
  return {{"layout", to_string(shape.layout)},
          {"query", variant.query},
          {"blocks", variant.blocks},
          {"sequences", variant.sequences},
          {"cores", program.cores},
          {"restickify_reads_lx", options.lx.restickify_reads},
          {"keys", residency(program, "K 0", program.pages.resident_keys)},
          {"values", residency(program, "V 0", program.pages.resident_values)},
          {"page_traffic_bytes", program.pages.device_bytes},
          {"page_copies", program.pages.copies},
          {"restickifies", program.pages.restickifies},
          {"device_ops", program.plan.ops.size()},
          {"rules_met", program.rules_met.by_number()},
          {"pool_bytes", program.plan.pool_bytes},
          {"peak_bytes_per_core", program.plan.lx.peak_bytes},
          {"measured_us", compiler::program_ns(program, device::measured_costs()) / 1000},
          {"spec_us", compiler::program_ns(program, device::spec_costs()) / 1000}};
}

// A decode and a chunk over half of the longest context, and a batched decode; what keeps pages inside, and what not.
json attention_entries(compiler::AttentionShape shape, const attention::Bucketer& bucketer,
                       std::optional<int64_t> max_cores) {
  const int64_t blocks = bucketer.block_ladder()[bucketer.block_ladder().size() / 2];
  const attention::Variant decode{.query = 1, .blocks = blocks},
      chunk{.query = bucketer.query_ladder().back(), .blocks = blocks};
  json out = json::array();
  for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
    shape.layout = layout;
    for (const attention::Variant& variant : {decode, chunk}) {
      for (const bool reads : {false, true}) {
        out.push_back(attention_entry(shape, variant, {.max_cores = max_cores, .lx = {.restickify_reads = reads}}));
      }
    }
    if (layout == KvLayout::kHeadMajor) {
      out.push_back(attention_entry(shape, decode, {.max_cores = device::kCores, .lx = {}}));
    } else if (!bucketer.sequence_ladder().empty()) {
      const attention::Variant grid{.query = 1, .blocks = blocks, .sequences = bucketer.sequence_ladder().back()};
      out.push_back(attention_entry(shape, grid, {.max_cores = max_cores, .lx = {}}));
    }
  }
  return out;
}

}  // namespace

json SpyreModelRunner::lx() const {
  json programs = json::object();
  std::optional<compiler::AttentionShape> shape;
  std::set<const device::Program*> seen;
  const auto add = [&](const std::vector<device::Launch>& launches, int64_t bucket) {
    for (const device::Launch& launch : launches) {
      if (!seen.insert(launch.program).second) continue;
      const std::string name = fmt::format("{:02} {} of {} tokens", seen.size(), launch.program->graph.name, bucket);
      programs[name] = program_entry(*launch.program, bucket);
      const device::CardPlan& card = launch.program->card;
      for (const device::DeviceOp& op : card.ops) {
        if (op.name != "attention" || shape.has_value()) continue;
        const device::TensorSpec& q = card.buffers[op.inputs[0]].spec;
        shape = compiler::AttentionShape{.heads = q.axes[1].card(),
                                         .kv_heads = card.buffers[op.inputs[1]].spec.axes[0].card(),
                                         .head_size = q.axes[2].card(),
                                         .block_size = *config_.block_size,
                                         .dtype = q.dtype,
                                         .layout = settings_.kv_layout,
                                         .soft_cap = launch.program->graph.ops[op.graph_op].float_attr("softcap") > 0};
      }
    }
  };
  if (!bodies_.empty()) {
    add(bodies_.begin()->second->launches, bodies_.begin()->first);
    add(bodies_.rbegin()->second->launches, bodies_.rbegin()->first);
  }
  if (!heads_.empty()) add(heads_.rbegin()->second->launches, heads_.rbegin()->first);
  return {{"bytes_per_core", device::kLxPlannedBytes},
          {"kv_layout", to_string(settings_.kv_layout)},
          {"programs", programs},
          {"attention", shape ? attention_entries(*shape, bucketer_, settings_.attention_cores) : json::array()}};
}

}  // namespace spyre::worker
