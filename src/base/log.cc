#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>

namespace spyre {

spdlog::logger& log() {
  // Never destroyed: worker threads and static destructors may still log.
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("spyre", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%L%$ %H:%M:%S.%e %v");
    const char* level = std::getenv("SPYRE_LOG_LEVEL");
    made->set_level(level ? spdlog::level::from_str(level) : spdlog::level::warn);
    return made;
  }();
  return *logger;
}

}  // namespace spyre
