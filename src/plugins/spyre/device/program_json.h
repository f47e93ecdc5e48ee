// A compiled program as data for pages and tools: operations with their division, bytes and times under both cost
// configurations; buffers with their extents, layout and home; bundles; rules met.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plugins/spyre/device/program.h"

namespace spyre::device {

// Keys: name, ns {measured, spec}, pool_bytes, restickified_bytes, ops, buffers, bundles, rules {number: count}. Of an
// op: name, of (its graph operator), graph_op, bundle, in, out (buffers; -1: none), splits [[dimension, parts]], cores,
// macs, read, write (bytes), ns {measured, spec} of the op alone, time {compute, memory, relayout} of "measured". Times
// are nanoseconds. |plan| is the program's own, or a copy of it that compiler::plan_lx() has been over: then buffers
// have lx {resident, address, bytes_per_core, reason}.
nlohmann::json program_json(const Program& program, const CardPlan& plan);

}  // namespace spyre::device
