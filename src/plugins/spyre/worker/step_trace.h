// What a traced step looks like: its programs on the host's time as they ran, and programs, device operations and
// transfers on the card's estimated time, one step after another.
//
// Made while tracing is on, by the thread that runs the steps. What a program's operations take is looked up once.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/trace.h"
#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/compiler/attention_program.h"
#include "plugins/spyre/compiler/planned_programs.h"
#include "plugins/spyre/device/memory.h"
#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/device/program.h"

namespace spyre::worker {

class StepTrace {
 public:
  // |attention_spans|: operations of attention lie in spans of the original's names, spyre_attn::forward with
  // ::reshape_and_cache (the store) and ::online_softmax in it (SPYRE_ATTN_PROFILING).
  // |times| gives what a step's keys take, |planned| the programs with their scratchpad; both outlive this.
  StepTrace(TraceRecorder& trace, compiler::AttentionTimes& times, compiler::PlannedPrograms& planned,
            bool attention_spans)
      : trace_(trace), times_(times), planned_(planned), attention_spans_(attention_spans) {}

  TraceRecorder& recorder() { return trace_; }
  // One step on the card: transfers to it, its programs in order, transfers back. |moved| is what this step moved.
  void add_card_step(std::span<const device::Launch* const> launches, const attention::StepTables* tables,
                     const device::TransferCounters& moved, int64_t tokens);

 private:
  struct OpSpan {
    std::string name;
    double ns = 0;
    TraceRecorder::Arguments arguments;
  };

  const std::vector<OpSpan>& ops_of(const device::Program& program);
  void add_transfers(const std::map<std::string, device::TransferTotals>& totals, const char* direction);
  void add_program(const device::Program& program, const attention::StepTables* tables);
  void add_attention(const char* stage, double begin);

  TraceRecorder& trace_;
  compiler::AttentionTimes& times_;
  compiler::PlannedPrograms& planned_;
  bool attention_spans_;
  std::map<const device::Program*, std::vector<OpSpan>> known_;
  double card_ns_ = 0;         // the card's time so far
  double attention_from_ = 0;  // where the store before the attention being added began
};

// What moved between two looks at the counters.
device::TransferCounters difference(const device::TransferCounters& after, const device::TransferCounters& before);

}  // namespace spyre::worker
