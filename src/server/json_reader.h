// The JSON of a request body: hostile text to a tree, within limits, strictly by RFC 8259.
//
// Refused, each with a message that says what and where: broken JSON (NaN and Infinity included), invalid UTF-8 and
// lone surrogates, a number beyond double (1e400), a key that stands twice, and what is longer, deeper or more than the
// limits allow. The reader keeps no stack frame per level, so depth costs nothing before it is refused. The tree keeps
// the order of keys: templates print them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace spyre::server {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;
  size_t max_values = 2'000'000;      // of the whole tree (about 64 bytes each)
  size_t max_members = 100'000;       // of one object
  size_t max_string_bytes = 4 << 20;  // the tokenizer takes no more
};

// Throws ApiError(400).
Json parse_json(std::string_view text, const JsonLimits& limits = {});

// A tree as text: valid UTF-8 whatever the strings hold (other bytes become U+FFFD).
std::string dump(const Json& tree);

}  // namespace spyre::server
