#include "server/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "server/api_error.h"

namespace spyre::server {
namespace {

void check_range(const Field& field, double value, const Json& json, const RequestLimits& limits) {
  const bool low = field.above_min ? !(value > field.min) : !(value >= field.min);
  if (low)
    bad_field(field.name, "must be {} {}, not {}", field.above_min ? "above" : "at least", field.min, shown(json));
  const double bound = field.bound == Bound::kNone ? kUnbounded : static_cast<double>(limits.of(field.bound));
  const double max = std::min(field.max, bound);
  if (!(value <= max)) bad_field(field.name, "must be at most {}, not {}", max, shown(json));
}

void check_entries(const Field& field, size_t entries, const RequestLimits& limits) {
  const int64_t most = limits.of(field.bound);
  if (static_cast<int64_t>(entries) > most)
    bad_field(field.name, "has {} entries; at most {} are taken", entries, most);
}

void expect_kind(const Field& field, bool is, const char* what, const Json& value) {
  if (!is) bad_field(field.name, "must be {}, not {}", what, shown(value));
}

bool all_strings(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); });
}

void check_strings(const Field& field, const Json& value, const RequestLimits& limits) {
  check_entries(field, value.is_string() ? 1 : value.size(), limits);
  const auto check = [&](const Json& entry) {
    const auto bytes = static_cast<int64_t>(entry.get_ref<const std::string&>().size());
    if (bytes == 0) bad_field(field.name, "an empty string is not allowed");
    if (bytes > limits.max_stop_bytes) {
      bad_field(field.name, "has a string of {} bytes; at most {} are taken", bytes, limits.max_stop_bytes);
    }
  };
  if (value.is_string()) return check(value);
  for (const Json& entry : value) check(entry);
}

void check_bias(const Field& field, const Json& value, const RequestLimits& limits) {
  check_entries(field, value.size(), limits);
  for (const auto& [key, bias] : value.items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      bad_field(field.name, "'{}' is no token id", quotable(key, 40));
    }
    if (id < 0 || id >= limits.vocab_size) {
      bad_field(field.name, "token id {} is outside the vocabulary of {}", id, limits.vocab_size);
    }
    if (!bias.is_number()) bad_field(field.name, "the bias of token {} must be a number, not {}", id, shown(bias));
  }
}

void check_prompt(const Field& field, const Json& value, const RequestLimits& limits) {
  if (value.is_string()) return;
  expect_kind(field, value.is_array(), "a string, a list of strings, a list of token ids, or a list of such lists",
              value);
  if (value.empty()) bad_field(field.name, "is an empty list");
  if (value[0].is_number()) {
    for (const Json& id : value) token_id(id, field.name, limits.vocab_size);
    return;
  }
  check_entries(field, value.size(), limits);
  const bool strings = value[0].is_string();
  for (const Json& entry : value) {
    expect_kind(field, strings ? entry.is_string() : entry.is_array(),
                strings ? "strings only when the first entry is one" : "a list of strings or of lists of token ids",
                entry);
    if (strings) continue;
    if (entry.empty()) bad_field(field.name, "has an empty list of token ids");
    for (const Json& id : entry) token_id(id, field.name, limits.vocab_size);
  }
}

void check_built(const Field& field, const Json& value, const RequestLimits& limits) {
  switch (field.kind) {
    case Kind::kBool:
      return expect_kind(field, value.is_boolean(), "true or false", value);
    case Kind::kInteger: {
      const auto number = whole_number(value);
      expect_kind(field, number.has_value(), "a whole number", value);
      return check_range(field, static_cast<double>(*number), value, limits);
    }
    case Kind::kNumber:
      expect_kind(field, value.is_number(), "a number", value);
      return check_range(field, value.get<double>(), value, limits);
    case Kind::kString:
      return expect_kind(field, value.is_string(), "a string", value);
    case Kind::kStrings:
      expect_kind(field, all_strings(value), "a list of strings", value);
      return check_strings(field, value, limits);
    case Kind::kStringOrStrings:
      expect_kind(field, value.is_string() || all_strings(value), "a string or a list of strings", value);
      return check_strings(field, value, limits);
    case Kind::kTokenIds:
      expect_kind(field, value.is_array(), "a list of token ids", value);
      check_entries(field, value.size(), limits);
      for (const Json& id : value) token_id(id, field.name, limits.vocab_size);
      return;
    case Kind::kPrompt:
      return check_prompt(field, value, limits);
    case Kind::kBias:
      expect_kind(field, value.is_object(), "an object of token ids and numbers", value);
      return check_bias(field, value, limits);
    case Kind::kObject:
      return expect_kind(field, value.is_object(), "an object", value);
    case Kind::kObjects:
      expect_kind(
          field,
          value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_object(); }),
          "a list of objects", value);
      return;
    case Kind::kAny:
      return;
  }
}

bool is_off(const Field& field, const Json& value) {
  if (field.off.empty()) return false;
  const Json off = Json::parse(field.off);
  return std::find(off.begin(), off.end(), value) != off.end();
}

}  // namespace

int64_t RequestLimits::of(Bound bound) const {
  switch (bound) {
    case Bound::kContext:
      return max_model_len;
    case Bound::kLogprobs:
      return max_logprobs;
    case Bound::kChoices:
      return max_choices;
    case Bound::kPrompts:
      return max_prompts;
    case Bound::kStops:
      return max_stops;
    case Bound::kListEntries:
      return max_list_entries;
    case Bound::kNone:
      break;
  }
  return std::numeric_limits<int64_t>::max();
}

void check_fields(const Json& body, std::span<const Field> table, const RequestLimits& limits) {
  if (!body.is_object()) throw ApiError(400, fmt::format("the body must be a JSON object, not {}", shown(body)));
  for (const auto& [name, value] : body.items()) {
    const auto field = std::find_if(table.begin(), table.end(), [&](const Field& f) { return f.name == name; });
    if (field == table.end()) {
      log().info("a request has the field '{}', which is not known and ignored", quotable(name));
      continue;
    }
    if (value.is_null() || field->status == Status::kIgnored) continue;
    if (field->status == Status::kBuilt) {
      check_built(*field, value, limits);
    } else if (!is_off(*field, value)) {
      bad_field(field->name, "is not built in this server ({})", field->doc);
    }
  }
}

const Json* Body::find(std::string_view name) const {
  const auto it = json_.find(name);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool Body::flag(std::string_view name, bool fallback) const {
  const Json* value = find(name);
  return value ? value->get<bool>() : fallback;
}

std::optional<int64_t> Body::integer(std::string_view name) const {
  const Json* value = find(name);
  return value ? whole_number(*value) : std::nullopt;
}

std::optional<double> Body::number(std::string_view name) const {
  const Json* value = find(name);
  return value ? std::optional(value->get<double>()) : std::nullopt;
}

std::optional<std::string> Body::string(std::string_view name) const {
  const Json* value = find(name);
  return value ? std::optional(value->get<std::string>()) : std::nullopt;
}

std::vector<std::string> Body::strings(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  return value->get<std::vector<std::string>>();
}

std::vector<int32_t> Body::ids(std::string_view name) const {
  std::vector<int32_t> out;
  if (const Json* value = find(name)) {
    out.reserve(value->size());
    for (const Json& id : *value) out.push_back(static_cast<int32_t>(*whole_number(id)));
  }
  return out;
}

int32_t token_id(const Json& value, std::string_view field, int64_t vocab_size) {
  const auto id = whole_number(value);
  if (!id) bad_field(field, "a token id must be a whole number, not {}", shown(value));
  if (*id < 0 || *id >= vocab_size) bad_field(field, "token id {} is outside the vocabulary of {}", *id, vocab_size);
  return static_cast<int32_t>(*id);
}

std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number) || std::fabs(number) > 9e15) return std::nullopt;  // beyond, doubles skip integers
  return static_cast<int64_t>(number);
}

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return "'" + quotable(value.get_ref<const std::string&>(), 60) + "'";
  return dump(value);
}

}  // namespace spyre::server
