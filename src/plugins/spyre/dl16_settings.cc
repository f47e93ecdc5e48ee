#include "plugins/spyre/dl16_settings.h"

#include <fmt/ranges.h>

#include <charconv>
#include <utility>
#include <vector>

#include "base/error.h"

namespace spyre::plugin {
namespace {

using Variable = std::function<std::optional<std::string>(const char*)>;

template <typename Value>
using Choices = std::vector<std::pair<std::string_view, Value>>;

template <typename Value>
void read_choice(const Variable& variable, const char* name, const Choices<Value>& choices, Value& value) {
  const std::optional<std::string> text = variable(name);
  if (!text) return;
  std::vector<std::string_view> known;
  for (const auto& [choice, meaning] : choices) {
    known.push_back(choice);
    if (*text != choice) continue;
    value = meaning;
    return;
  }
  throw_error(ErrorCode::kInvalidArgument, "{}='{}' is not a known value; known: {}", name, *text,
              fmt::join(known, ", "));
}

// The whole of |text| as a number from |low| to |high|.
template <typename Number>
std::optional<Number> parse(const std::string& text, Number low, Number high) {
  Number value{};
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || !(value >= low && value <= high)) return std::nullopt;
  return value;
}

constexpr int64_t kLargestChunk = 65536;

void read_accumulate(const Variable& variable, int64_t& chunk) {
  const char* name = "SPYRE_DL16_ACCUMULATE";
  const std::optional<std::string> text = variable(name);
  if (!text || *text == "fp32") return;
  const std::optional<int64_t> elements = parse<int64_t>(*text, 1, kLargestChunk);
  if (!elements) {
    throw_error(ErrorCode::kInvalidArgument, "{}='{}' is neither fp32 nor a chunk of 1 to {} elements", name, *text,
                kLargestChunk);
  }
  chunk = *elements;
}

void read_floor(const Variable& variable, float& floor) {
  const char* name = "SPYRE_DL16_EXP_FLOOR";
  const std::optional<std::string> text = variable(name);
  if (!text) return;
  const std::optional<float> value = parse<float>(*text, 0, 1);
  if (!value) throw_error(ErrorCode::kInvalidArgument, "{}='{}' is not a number from 0 to 1", name, *text);
  floor = *value;
}

}  // namespace

device::Dl16Settings read_dl16_settings(const Variable& variable) {
  device::Dl16Settings settings;
  read_choice<Dl16Ties>(
      variable, "SPYRE_DL16_TIES",
      {{"away", Dl16Ties::kAway}, {"even", Dl16Ties::kEven}, {"zero", Dl16Ties::kZero}, {"odd", Dl16Ties::kOdd}},
      settings.rules.ties);
  read_choice<Dl16Subnormals>(variable, "SPYRE_DL16_SUBNORMALS",
                              {{"as_shipped", Dl16Subnormals::kAsShipped}, {"fixed", Dl16Subnormals::kFixed}},
                              settings.rules.subnormals);
  read_choice<Dl16Top>(variable, "SPYRE_DL16_TOP", {{"format", Dl16Top::kFormat}, {"constants", Dl16Top::kConstants}},
                       settings.rules.top);
  read_choice<bool>(variable, "SPYRE_DL16_EXP_GUARD", {{"0", false}, {"1", true}}, settings.exp_guard);
  read_floor(variable, settings.exp_floor);
  read_accumulate(variable, settings.accumulate_chunk);
  return settings;
}

}  // namespace spyre::plugin
