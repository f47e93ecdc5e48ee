#include "cli/trace_file.h"

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "cli/output.h"

namespace spyre::cli {

void add_trace_flag(CLI::App& command, std::string& file) {
  command
      .add_option(
          "--trace", file,
          "Write what steps, programs, device operations and transfers took, on the host's time and on the card's "
          "estimated time, for chrome://tracing or Perfetto; programs then run one by one")
      ->type_name("FILE")
      ->group("Output");
}

TraceFile::TraceFile(std::string file, runner::Worker& worker) : file_(std::move(file)), worker_(worker) {
  if (file_.empty()) return;
  write_file(file_, "");
  recorder_ = std::make_unique<TraceRecorder>();
  worker_.set_trace(recorder_.get());
}

TraceFile::~TraceFile() {
  if (recorder_ != nullptr) worker_.set_trace(nullptr);
}

void TraceFile::finish() {
  if (recorder_ == nullptr) return;
  worker_.set_trace(nullptr);
  write_file(file_, recorder_->json());
  if (recorder_->lost() > 0)
    log().warn("--trace: {} spans beyond the first {} are lost", recorder_->lost(), recorder_->size());
  recorder_.reset();
}

}  // namespace spyre::cli
