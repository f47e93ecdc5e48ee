#include "formats/json.h"

#include "base/error.h"
#include "formats/bytes.h"
#include "formats/foreign.h"

namespace spyre::formats {

nlohmann::json parse_json_object(std::string_view text, const std::string& name) {
  using nlohmann::json;
  if (text.size() > kMaxJsonBytes)
    throw_error(ErrorCode::kResourceExhausted, "{} has {} bytes; at most {} are read", name, text.size(),
                kMaxJsonBytes);
  const auto guard = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxJsonDepth)
      throw_error(ErrorCode::kCorruptData, "{}: JSON nested deeper than {}", name, kMaxJsonDepth);
    return true;
  };
  try {
    json tree = json::parse(text, guard);
    if (!tree.is_object())
      throw_error(ErrorCode::kCorruptData, "{}: a JSON object is expected, this is {}", name, tree.type_name());
    return tree;
  } catch (const json::exception& error) {
    refuse_foreign(text, name);
    std::string_view why = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const size_t tag = why.find("] "); why.starts_with('[') && tag != why.npos) why.remove_prefix(tag + 2);
    throw_error(ErrorCode::kCorruptData, "{}: broken JSON: {}", name, printable(why, 200));
  }
}

}  // namespace spyre::formats
