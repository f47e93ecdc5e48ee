// --trace FILE: what a command's steps did when, for a trace viewer (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <memory>
#include <string>

#include "base/trace.h"
#include "runner/worker.h"

namespace CLI {
class App;
}

namespace spyre::cli {

void add_trace_flag(CLI::App& command, std::string& file);

// Traces |worker| from its construction to finish(), if |file| is not empty. The file is made at once, so that one that
// cannot be written is known before the work. Throws Error(kUnavailable). The worker must outlive it.
class TraceFile {
 public:
  TraceFile(std::string file, runner::Worker& worker);
  ~TraceFile();  // ends the tracing; what finish() has not written is lost
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // No step may be running.
  void finish();

 private:
  std::string file_;
  runner::Worker& worker_;
  std::unique_ptr<TraceRecorder> recorder_;
};

}  // namespace spyre::cli
