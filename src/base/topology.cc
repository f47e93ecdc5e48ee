#include "base/topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

namespace spyre {
namespace {

constexpr int kMostCpus = 65536;

std::optional<std::vector<int>> list_in(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return parse_cpu_list(line);
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostCpus) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const size_t dash = std::min(part.find('-'), part.size());
    const std::optional<int> first = number(part.substr(0, dash));
    const std::optional<int> last = dash == part.size() ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (comma + 1 == text.size()) return std::nullopt;  // a comma at the end
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

Topology Topology::read(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (int id : list_in(folder + "/online").value_or(std::vector<int>{})) {
    std::optional<std::vector<int>> cpus = list_in(folder + "/node" + std::to_string(id) + "/cpulist");
    if (cpus) nodes.push_back({id, std::move(*cpus)});
  }
  return Topology(std::move(nodes));
}

int Topology::node_of(int cpu) const {
  for (const NumaNode& node : nodes_) {
    if (std::binary_search(node.cpus.begin(), node.cpus.end(), cpu)) return node.id;
  }
  return 0;
}

std::vector<int> Topology::in_node_order(std::span<const int> cpus) const {
  std::vector<std::pair<int, int>> order;  // node, CPU
  for (int cpu : cpus) order.emplace_back(node_of(cpu), cpu);
  std::sort(order.begin(), order.end());
  std::vector<int> sorted;
  std::transform(order.begin(), order.end(), std::back_inserter(sorted),
                 [](const auto& entry) { return entry.second; });
  return sorted;
}

}  // namespace spyre
