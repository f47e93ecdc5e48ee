// The interface described from the tables that check it: /openapi.json and docs/api.md.
#pragma once

#include <string>

namespace spyre::server {

std::string openapi_json();
std::string api_page();  // Markdown

}  // namespace spyre::server
