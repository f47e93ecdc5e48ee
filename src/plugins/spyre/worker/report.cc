// The accounts of a model runner, as JSON: what `inspect`, `bench` and `/metrics` print.
#include <nlohmann/json.hpp>

#include "plugins/spyre/device/rules.h"
#include "plugins/spyre/worker/meters.h"
#include "plugins/spyre/worker/model_runner.h"

namespace spyre::worker {
namespace {

using nlohmann::json;

json transfer_json(const std::map<std::string, device::TransferTotals>& totals) {
  json out = json::object();
  for (const auto& [label, t] : totals) {
    out[label] = {{"count", t.count}, {"card_bytes", t.card_bytes}, {"logical_bytes", t.logical_bytes}};
  }
  return out;
}

// What one step has to read and multiply, counted from the traces: the figures that speeds are divided by.
struct Work {
  int64_t weight_bytes = 0;  // read once per step, whatever its rows
  int64_t row_bytes = 0;     // table rows gathered per token (embedding, rotary)
  int64_t flops_per_row = 0;

  void add(const nn::Trace& trace) {
    for (const nn::Segment& segment : trace.segments) {
      for (const graph::Op& op : segment.graph.ops) {
        for (size_t i = 0; i < op.inputs.size(); ++i) {
          const graph::Value& value = segment.graph.value(op.inputs[i]);
          if (value.role == graph::Role::kParameter) add(op, i, value.type);
        }
      }
    }
  }

 private:
  void add(const graph::Op& op, size_t operand, const graph::Type& type) {
    const auto bytes = static_cast<int64_t>(size_of(type.dtype)) * type.elements();
    if (op.name() == "gather_rows" && operand == 0) {
      row_bytes += bytes / type.extent(0);
      return;
    }
    weight_bytes += bytes;
    if ((op.name() == "matmul" || op.name() == "linear") && operand == 1) flops_per_row += 2 * type.elements();
  }
};

}  // namespace

json SpyreModelRunner::work() const {
  Work body, head;
  body.add(parts_.body().trace());
  head.add(parts_.head().trace());
  int64_t attention = 0;  // a query with a key: a product for the score, one for the value
  for (const nn::Attention* layer : attention_layers_)
    attention += 4 * layer->options().heads * layer->options().head_size;
  const runner::KvCacheSpec kv = kv_cache_spec();
  return {{"weight_bytes_per_step", body.weight_bytes + head.weight_bytes},
          {"table_bytes_per_token", body.row_bytes},
          {"kv_bytes_per_token", kv.bytes_per_block / kv.block_size},
          {"body_flops_per_token", body.flops_per_row},
          {"head_flops_per_row", head.flops_per_row},
          {"attention_flops_per_pair", attention}};
}

json SpyreModelRunner::artifacts() const {
  // A class is what shares one forward code: the block's class name, or the name of what lies outside of blocks.
  std::map<std::string, int64_t> classes;
  std::map<std::string, std::map<int64_t, std::set<const device::Program*>>> per_bucket;
  for (const auto& [key, program] : compiler_.cache()) ++classes[program->graph.name];
  for (const auto& [bucket, plan] : bodies_) {
    for (size_t s = 0; s < plan->launches.size(); ++s) {
      const nn::Module* block = parts_.body().trace().segments[s].block;
      if (block != nullptr) per_bucket[block->class_name()][bucket].insert(plan->launches[s].program);
    }
  }
  json blocks = json::object();
  for (const auto& [name, buckets] : per_bucket) {
    for (const auto& [bucket, programs] : buckets) blocks[name][std::to_string(bucket)] = programs.size();
  }
  const int64_t launches = bodies_.empty() ? 0 : std::ssize(bodies_.begin()->second->launches);
  return {{"total", compiler_.artifacts()},    {"per_class", classes},
          {"granularity", granularity()},      {"body_launches", launches},
          {"block_graphs_per_bucket", blocks}, {"attention_variants", variants_.size()},
          {"compiles", compiler_.compiles()},  {"compiles_after_ready", compiles_after_ready_}};
}

json SpyreModelRunner::buckets() const {
  json variants = json::array(), batched = json::array();
  for (const attention::Variant& v : variants_) {
    if (v.sequences > 0) {
      batched.push_back({v.blocks, v.sequences});
    } else {
      variants.push_back({v.query, v.blocks});
    }
  }
  return {{"tokens", token_ladder_},
          {"query", bucketer_.query_ladder()},
          {"kv_blocks", bucketer_.block_ladder()},
          {"attention_variants", variants},
          {"batched_decode_sequences", bucketer_.sequence_ladder()},
          {"batched_decode_variants", batched}};
}

json SpyreModelRunner::rules_met() const {
  std::map<std::string, int64_t> met;
  for (const auto& [key, program] : compiler_.cache()) {
    for (const auto& [number, count] : program->rules_met) met[number] += count;
  }
  json out = json::array();
  for (const device::RuleInfo& r : device::all_rules()) {
    const auto found = met.find(std::string(r.number));
    if (found == met.end()) continue;
    out.push_back({{"number", r.number}, {"title", r.title}, {"met", found->second}, {"refused", r.refused}});
  }
  return out;
}

json SpyreModelRunner::layouts() const {
  json out = json::array();
  if (bodies_.empty()) return out;
  const BodyPlan& plan = *bodies_.rbegin()->second;
  std::set<const device::Program*> seen;
  for (size_t s = 0; s < plan.launches.size(); ++s) {
    const device::Program& p = *plan.launches[s].program;
    if (!seen.insert(&p).second) continue;
    json values = json::array();
    for (const device::CardBuffer& b : p.card.buffers) {
      json axes = json::array();
      for (const device::Axis& axis : b.spec.axes) axes.push_back(axis.to_string());
      values.push_back({{"value", b.value < 0 ? "" : p.graph.value(b.value).name},
                        {"axes", axes},
                        {"layout", b.spec.layout.to_string()},
                        {"bytes", b.spec.card_bytes()}});
    }
    out.push_back({{"graph", p.graph.name},
                   {"bucket", plan.bucket},
                   {"values", values},
                   {"device_ops", p.card.ops.size()},
                   {"host_steps", p.host.steps.size()},
                   {"host_barriers", {{"few_rows", p.host.phases.size()}, {"many_rows", p.host.segments.size()}}},
                   {"host_phases", device::describe_phases(p.host)},
                   {"pool_bytes", p.card.pool_bytes},
                   {"restickified_bytes", p.card.restickified_bytes},
                   {"estimated_us", planned_.of(p).ns / 1000}});
  }
  return out;
}

json SpyreModelRunner::transfers() const {
  auto both = [](const device::TransferCounters& counters) {
    return json{{"to_device", transfer_json(counters.to_device)}, {"to_host", transfer_json(counters.to_host)}};
  };
  return {{"while_loading", both(load_transfers_)},
          {"one_token_step", both(step_transfers_)},
          {"since_ready", both(device_.transfers())},
          {"steps", device_.steps_run()}};
}

json SpyreModelRunner::rows() const {
  const auto both = [](const RowTotals& t) { return json{{"live", t.live}, {"padding", t.padding}}; };
  return {{"body", both(body_rows_)}, {"head", both(head_rows_)}};
}

json SpyreModelRunner::memory() const {
  return {{"card_bytes", device_.memory().used_by_label()},
          {"card_used", device_.memory().used()},
          {"card_capacity", device_.memory().capacity()},
          {"host_weight_bytes", weights_ ? weights_->host_bytes() : 0},
          {"kv_blocks", num_blocks_},
          {"kv_bytes", num_blocks_ * kv_cache_spec().bytes_per_block}};
}

json SpyreModelRunner::device_facts() const {
  const device::DeviceOptions& o = device_.options();
  return {{"kernels", to_string(o.features)},
          {"bf16_order", to_string(o.bf16_order)},
          {"threads", o.threads},
          {"dtype", to_string(*config_.dtype)},
          {"mode", o.mode == device::ExecutionMode::kDl16      ? "dl16"
                   : o.mode == device::ExecutionMode::kChecked ? "checked"
                                                               : "host"}};
}

json SpyreModelRunner::warm_up_facts() const {
  return {{"programs_compiled", warm_up_.programs_compiled},
          {"variants_recorded", warm_up_.variants_recorded},
          {"compile_seconds", warm_up_.compile_seconds},
          {"execute_seconds", warm_up_.execute_seconds},
          {"executed", "one step of one token"}};
}

// The card's time by the fitted cost model: of a step of one token at position 0, and of the step run last.
json SpyreModelRunner::card_time() const {
  return {{"one_token_step_us", warm_up_card_ns_ / 1000}, {"last_step_us", last_step_card_ns() / 1000}};
}

json SpyreModelRunner::settings() const {
  json out = json::array();
  for (const plugin::SettingInfo& s : plugin::all_settings()) {
    out.push_back({{"name", s.name}, {"values", s.values}, {"default", s.initial}, {"help", s.help}});
  }
  return out;
}

json SpyreModelRunner::report(const std::string& topic) const {
  using Topic = json (SpyreModelRunner::*)() const;
  static constexpr std::pair<const char*, Topic> kTopics[] = {{"device", &SpyreModelRunner::device_facts},
                                                              {"artifacts", &SpyreModelRunner::artifacts},
                                                              {"buckets", &SpyreModelRunner::buckets},
                                                              {"rules", &SpyreModelRunner::rules_met},
                                                              {"layouts", &SpyreModelRunner::layouts},
                                                              {"transfers", &SpyreModelRunner::transfers},
                                                              {"rows", &SpyreModelRunner::rows},
                                                              {"memory", &SpyreModelRunner::memory},
                                                              {"warm_up", &SpyreModelRunner::warm_up_facts},
                                                              {"work", &SpyreModelRunner::work},
                                                              {"card_time", &SpyreModelRunner::card_time},
                                                              {"lx", &SpyreModelRunner::lx},
                                                              {"settings", &SpyreModelRunner::settings}};
  if (topic == "passes") return passes();
  if (topic.starts_with("dump/")) return text_after(topic.substr(5));
  if (topic.starts_with("meters/")) return measure_meters(topic.substr(7), device_, *config_.dtype);
  json all = json::object();
  for (const auto& [name, function] : kTopics) {
    if (topic == name) return (this->*function)();
    if (topic == "all") all[name] = (this->*function)();
  }
  return topic == "all" ? all : json();
}

}  // namespace spyre::worker
