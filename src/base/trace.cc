#include "base/trace.h"

#include <fmt/format.h>

namespace spyre {
namespace {

// Not "quoted": for a std::string, argument-dependent lookup would prefer std::quoted where <iomanip> is included.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {  // names of ours are ASCII
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

int number(TraceProcess process) {
  return process == TraceProcess::kHost ? 1 : 2;
}

}  // namespace

double TraceRecorder::now() const {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_).count();
}

int32_t TraceRecorder::track_of(TraceProcess process, std::string_view name) {
  for (size_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].process == process && tracks_[i].name == name) return static_cast<int32_t>(i);
  }
  tracks_.push_back({process, std::string(name)});
  return static_cast<int32_t>(tracks_.size()) - 1;
}

void TraceRecorder::add(TraceProcess process, std::string_view track, std::string name, double begin, double end,
                        Arguments arguments) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() >= limit_) {
    ++lost_;
    return;
  }
  spans_.push_back({process, track_of(process, track), std::move(name), begin, end, std::move(arguments)});
}

size_t TraceRecorder::size() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

size_t TraceRecorder::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::string TraceRecorder::json() const {
  const std::lock_guard lock(mutex_);
  std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)";
  out += R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"host"}})";
  out += R"(,{"ph":"M","pid":2,"name":"process_name","args":{"name":"card, estimated time"}})";
  for (size_t i = 0; i < tracks_.size(); ++i) {
    out += fmt::format(R"(,{{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                       number(tracks_[i].process), i + 1, json_string(tracks_[i].name));
  }
  for (const Span& s : spans_) {
    out += fmt::format(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{}",
                       number(s.process), s.track + 1, s.begin / 1e3, (s.end - s.begin) / 1e3, json_string(s.name));
    if (!s.arguments.empty()) {
      out += ",\"args\":{";
      for (size_t i = 0; i < s.arguments.size(); ++i) {
        out += fmt::format("{}{}:{}", i > 0 ? "," : "", json_string(s.arguments[i].first), s.arguments[i].second);
      }
      out += '}';
    }
    out += '}';
  }
  return out + fmt::format("],\n\"otherData\":{{\"spans_lost\":{}}}}}\n", lost_);
}

}  // namespace spyre
