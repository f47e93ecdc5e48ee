#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace spyre {

spdlog::logger& log() {
  // Never destroyed: worker threads and static destructors may still log.
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("spyre", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%L%$ %H:%M:%S.%e %v");
    made->set_level(spdlog::level::warn);
    if (const char* name = std::getenv("SPYRE_LOG_LEVEL")) {
      const auto level = spdlog::level::from_str(name);  // `off` for a word that it does not know
      if (level != spdlog::level::off || std::strcmp(name, "off") == 0) {
        made->set_level(level);
      } else {
        made->warn("SPYRE_LOG_LEVEL='{}' is none of trace, debug, info, warn, error, off", name);
      }
    }
    return made;
  }();
  return *logger;
}

}  // namespace spyre
