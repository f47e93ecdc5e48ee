// The report page: one HTML file that needs nothing else, with its data embedded as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spyre::cli {

// |size|: what Platform::size_model() says, with details. |run|: what a loaded model says of itself, or null. Texts of
// the data are never read as markup.
std::string report_page(const std::string& name, const nlohmann::json& size, const nlohmann::json& run);

}  // namespace spyre::cli
