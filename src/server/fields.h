// The fields of request bodies, in tables: one table per endpoint, from which come the checks of a request, docs/api.md
// and /openapi.json. So no field is accepted that is not documented, and none is documented that is not checked.
//
// A field is
//   built      checked and obeyed;
//   not built  known to vLLM or OpenAI clients, but without effect here: a request that uses it is refused by its name,
//   one
//              that sets it to a value that means "off" is served;
//   ignored    accepted whatever it holds, because nothing it could change exists here (vLLM ignores it too).
// A field in no table is ignored, with a line in the log, as vLLM does. null means that the field is not there.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/json_reader.h"

namespace spyre::server {

enum class Kind : uint8_t {
  kBool,
  kInteger,  // 5 and 5.0
  kNumber,
  kString,
  kStrings,          // a list of strings
  kStringOrStrings,  // one string is a list of one
  kTokenIds,         // a list of ids of the model's vocabulary
  kPrompt,           // a string, a list of strings, a list of ids, a list of lists of ids
  kBias,             // an object: token id -> number
  kObject,
  kObjects,  // a list of objects
  kAny,
};

enum class Status : uint8_t { kBuilt, kNotBuilt, kIgnored };

// Limits that come from the model or the server's configuration: the largest number, or the most entries of a list.
enum class Bound : uint8_t { kNone, kContext, kLogprobs, kChoices, kPrompts, kStops, kListEntries };

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

struct Field {
  std::string_view name;
  Kind kind = Kind::kAny;
  Status status = Status::kBuilt;
  std::string_view fallback;  // what holds when it is not given, as text for the docs; "" = nothing
  double min = -kUnbounded, max = kUnbounded;
  bool above_min = false;  // min itself is out
  Bound bound = Bound::kNone;
  std::string_view off;  // kNotBuilt: a JSON list of the values that mean "off" (null always does)
  std::string_view doc;
};

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  int64_t max_logprobs = 20;
  int64_t max_choices = 128;         // n
  int64_t max_prompts = 256;         // of one request
  int64_t max_total_choices = 1024;  // prompts times n
  int64_t max_stops = 64;            // stop strings
  int64_t max_stop_bytes = 1024;     // of one stop string or bad word
  int64_t max_list_entries = 65536;  // bad_words, logit_bias, allowed_token_ids, ...

  int64_t of(Bound bound) const;  // kNone: the largest int64
};

std::span<const Field> completion_fields();
std::span<const Field> chat_fields();
std::span<const Field> tokenize_fields();
std::span<const Field> detokenize_fields();

// Checks every member of |body| against |table|. Throws ApiError(400) naming the field and what is wrong with it.
void check_fields(const Json& body, std::span<const Field> table, const RequestLimits& limits);

// Typed access to a body that check_fields() has passed.
class Body {
 public:
  explicit Body(const Json& json) : json_(json) {}

  const Json* find(std::string_view name) const;  // nullptr: absent or null
  bool flag(std::string_view name, bool fallback) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::string> string(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;
  std::vector<int32_t> ids(std::string_view name) const;

 private:
  const Json& json_;
};

// A token id, or ApiError(400) naming |field|.
int32_t token_id(const Json& value, std::string_view field, int64_t vocab_size);
// A whole number (5, 5.0), if |value| is one that int64 holds.
std::optional<int64_t> whole_number(const Json& value);
// |value| in a message: short, on one line.
std::string shown(const Json& value);

}  // namespace spyre::server
