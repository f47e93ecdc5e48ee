// What `spyre bench drive` answers: a script that measures engines in turns keeps the program open and asks it, a JSON
// object a line, so that neither the start nor the loading is in what it measures.
//
//   {"run": {"prompts": [[ids], ...], "output_tokens": N}}   the requests side by side, ids drawn greedily and no end
//       -> {"times": [[s, ...], ...]}            for each request when each of its tokens came, in seconds from the
//       start
//   {"limits": {"stream_bytes": N}}              what the machine can do now, by the platform's meters
//       -> {"instruction": ..., "gflops": x, "gbps": y, "threads": n}, all null on a platform without meters
//   {"report": "rows"}                           a report of the worker's
//       -> {"report": ...}
//   anything else, or what goes wrong            -> {"error": "one line"}; the next question is answered all the same
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "cli/model_options.h"
#include "engine/engine.h"

namespace spyre::cli {

// Not thread-safe; borrows |open|. The engine has no prefix cache: every prompt is computed.
class BenchDrive {
 public:
  explicit BenchDrive(OpenModel& open);

  // What was opened: model, build, platform, dtype, order, device, work (bytes and FLOPs of a step), start.
  nlohmann::json opened() const;
  // Throws Error(kCancelled) when interrupted, and nothing else.
  nlohmann::json answer(std::string_view line);

 private:
  nlohmann::json run(const nlohmann::json& what);
  nlohmann::json limits(const nlohmann::json& what) const;

  OpenModel& open_;
  engine::Engine engine_;
  int64_t runs_ = 0;  // so that ids differ
};

}  // namespace spyre::cli
