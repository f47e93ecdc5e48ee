// spyre platforms: where models can run, and why a plugin cannot.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "platform/plugin.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

json list_platforms() {
  const auto registry = platform::PlatformRegistry::discover(platform::PlatformRegistry::default_manifest_dirs());
  json out = json::array();
  for (const std::string& name : registry.names()) {
    out.push_back({{"name", name}, {"description", registry.get(name).description()}, {"origin", "built in"}});
  }
  for (const platform::PluginRecord& plugin : registry.plugins()) {
    const auto known = std::find_if(out.begin(), out.end(), [&](const json& p) { return p["name"] == plugin.name; });
    if (known != out.end()) {
      (*known)["origin"] = plugin.manifest.string();
    } else {
      out.push_back({{"name", plugin.name}, {"origin", plugin.manifest.string()}, {"problem", plugin.problem}});
    }
  }
  return out;
}

}  // namespace

void add_platforms(CLI::App& app) {
  CLI::App* command = app.add_subcommand("platforms", "Where models can run: built-in platforms and plugins");
  auto format = std::make_shared<std::string>("text");
  command->add_option("--format", *format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->final_callback([format] {
    const json platforms = list_platforms();
    if (*format == "json") return write_out(platforms.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
    for (const json& p : platforms) {
      const std::string what =
          p.contains("problem") ? "broken: " + p["problem"].get<std::string>() : p["description"].get<std::string>();
      write_out(fmt::format("{:<10} {} ({})\n", p["name"].get<std::string>(), what, p["origin"].get<std::string>()));
    }
  });
}

}  // namespace spyre::cli
