// GET /metrics: Prometheus' text format, with vLLM's names, so that dashboards made for it work, and our own as
// spyre_*.
#pragma once

#include <string>
#include <string_view>

#include "engine/stats.h"
#include "server/http_server.h"

namespace spyre::server {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// |model| is the value of the label model_name.
std::string metrics_page(const engine::EngineStats& stats, const HttpCounters& http, std::string_view model);

// A label's value, escaped.
std::string label_value(std::string_view text);

}  // namespace spyre::server
