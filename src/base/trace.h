// A recording of what happened when, for a trace viewer (Chrome's or Perfetto's format): spans on tracks of two
// processes, the host on its own clock and the card on the time that the cost model gives it.
//
// Who can be traced holds a pointer that is usually null: tracing costs nothing where it is off. Spans may be added
// from any thread. What is kept is bounded: past |limit| spans nothing more is kept, and the file says how many were
// lost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/export.h"

namespace spyre {

enum class TraceProcess : uint8_t { kHost, kCard };

class SPYRE_API TraceRecorder {
 public:
  using Arguments = std::vector<std::pair<std::string, int64_t>>;  // shown beside a span: rows, bytes, cores

  explicit TraceRecorder(size_t limit = size_t{1} << 20) : limit_(limit) {}

  // Nanoseconds since the recorder was made: the host's time.
  double now() const;
  // [begin, end) in nanoseconds of the process's own time. |track| names the line: equal names are one line. On one
  // track spans follow each other or lie inside one another.
  void add(TraceProcess process, std::string_view track, std::string name, double begin, double end,
           Arguments arguments = {});

  size_t size() const;
  size_t lost() const;
  // The JSON object of the format, times in microseconds.
  std::string json() const;

 private:
  struct Span {
    TraceProcess process;
    int32_t track;
    std::string name;
    double begin, end;
    Arguments arguments;
  };
  struct Track {
    TraceProcess process;
    std::string name;
  };

  int32_t track_of(TraceProcess process, std::string_view name);

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const size_t limit_;
  mutable std::mutex mutex_;
  std::vector<Track> tracks_;
  std::vector<Span> spans_;
  size_t lost_ = 0;
};

// A span of the host's time from its construction to its end; nothing when |trace| is null.
class HostSpan {
 public:
  HostSpan(TraceRecorder* trace, std::string_view track, std::string_view name) : trace_(trace) {
    if (trace_ == nullptr) return;
    track_ = track;
    name_ = name;
    begin_ = trace_->now();
  }
  ~HostSpan() {
    if (trace_ != nullptr) trace_->add(TraceProcess::kHost, track_, std::string(name_), begin_, trace_->now());
  }
  HostSpan(const HostSpan&) = delete;
  HostSpan& operator=(const HostSpan&) = delete;

 private:
  TraceRecorder* trace_;
  std::string_view track_, name_;  // literals
  double begin_ = 0;
};

}  // namespace spyre
