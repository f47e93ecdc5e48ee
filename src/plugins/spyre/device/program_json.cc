#include "plugins/spyre/device/program_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plugins/spyre/device/op_work.h"

namespace spyre::device {
namespace {

using nlohmann::json;

std::string_view home_name(BufferHome home) {
  switch (home) {
    case BufferHome::kInput:
      return "input";
    case BufferHome::kParameter:
      return "parameter";
    case BufferHome::kState:
      return "state";
    case BufferHome::kOutput:
      return "output";
    case BufferHome::kPool:
      return "pool";
    case BufferHome::kNone:
      return "view";
  }
  return "";
}

json buffer_json(const Program& program, const CardBuffer& b) {
  json axes = json::array();
  for (const Axis& axis : b.spec.axes) axes.push_back(axis.to_string());
  json lx;
  if (b.lx.reason != LxReason::kNotPlanned) {
    lx = {{"resident", b.lx.resident()},
          {"address", b.lx.address},
          {"bytes_per_core", b.lx.bytes_per_core},
          {"reason", to_string(b.lx.reason)}};
  }
  return {{"value", b.value < 0 ? "" : program.graph.value(b.value).name},
          {"home", home_name(b.home)},
          {"axes", std::move(axes)},
          {"layout", b.spec.layout.to_string()},
          {"bytes", b.spec.card_bytes()},
          {"pool_offset", b.pool_offset},
          {"view", b.view},
          {"base", b.base},
          {"lx", std::move(lx)}};
}

json op_json(const Program& program, const CardPlan& plan, size_t index) {
  const DeviceOp& op = plan.ops[index];
  const OpWork work = work_of(program.graph, plan, index);
  const OpTime time = time_of(measured_costs(), work);
  json splits = json::array();
  for (size_t d = 0; d < op.splits.size(); ++d) splits.push_back({op.split_dims[d], op.splits[d]});
  std::string of;
  if (op.graph_op >= 0) {
    const graph::Op& from = program.graph.ops[op.graph_op];
    of = fmt::format("{} %{}", from.name(), program.graph.value(from.outputs[0]).name);
  }
  return {{"name", op.name},
          {"of", of},
          {"graph_op", op.graph_op},
          {"in", op.inputs},
          {"out", op.outputs},
          {"splits", std::move(splits)},
          {"cores", work.cores},
          {"macs", op.macs},
          {"read", op.read_bytes},
          {"write", op.write_bytes},
          {"scratch", op.lx_bytes},
          {"ns", {{"measured", time.total()}, {"spec", estimate_ns(spec_costs(), work)}}},
          {"time", {{"compute", time.compute}, {"memory", time.memory}, {"relayout", time.relayout}}}};
}

}  // namespace

json program_json(const Program& program, const CardPlan& plan) {
  json ops = json::array(), buffers = json::array(), bundles = json::array();
  for (size_t i = 0; i < plan.ops.size(); ++i) ops.push_back(op_json(program, plan, i));
  for (const CardBuffer& b : plan.buffers) buffers.push_back(buffer_json(program, b));
  for (const Bundle& bundle : bundles_of(program.graph, plan, measured_costs())) {
    for (int32_t i = bundle.first; i < bundle.end; ++i) ops[i]["bundle"] = bundles.size();
    bundles.push_back({{"first", bundle.first}, {"end", bundle.end}, {"ns", bundle.time.total()}});
  }
  return {{"name", program.graph.name},
          {"ns",
           {{"measured", program_ns(program.graph, plan, measured_costs())},
            {"spec", program_ns(program.graph, plan, spec_costs())}}},
          {"pool_bytes", plan.pool_bytes},
          {"restickified_bytes", plan.restickified_bytes},
          {"ops", std::move(ops)},
          {"buffers", std::move(buffers)},
          {"bundles", std::move(bundles)},
          {"rules", program.rules_met}};
}

}  // namespace spyre::device
