#include "server/json_reader.h"

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/api_error.h"

namespace spyre::server {
namespace {

// Builds the tree by hand: the library's own builder looks for each key in the object so far, which is quadratic for
// objects that keep their order.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool binary(Json::binary_t&) override { return false; }
  bool string(std::string& value) override {
    check_length(value, "string");
    return put(std::move(value));
  }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    check_length(name, "key");
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      throw ApiError(400, fmt::format("the body has the key '{}' twice in one object", quotable(name)), quotable(name));
    }
    if (level.keys.size() > limits_.max_members) {
      throw ApiError(400, fmt::format("the body has an object of more than {} members", limits_.max_members));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    std::string_view why = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const size_t tag = why.find("] "); why.starts_with('[') && tag != why.npos) why.remove_prefix(tag + 2);
    throw ApiError(400, "the body is no JSON: " + quotable(why, 240));
  }

 private:
  struct Level {
    Json* node;
    std::unordered_set<std::string> keys;
  };

  void check_length(const std::string& text, const char* what) const {
    if (text.size() <= limits_.max_string_bytes) return;
    throw ApiError(400, fmt::format("the body has a {} of {} bytes; at most {} are taken", what, text.size(),
                                    limits_.max_string_bytes));
  }

  // A node's address holds while the node is built: only the innermost container grows.
  Json* add(Json value) {
    if (++values_ > limits_.max_values) {
      throw ApiError(400, fmt::format("the body has more than {} values", limits_.max_values));
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *levels_.back().node;
    if (parent.is_array()) {
      auto& array = parent.get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    std::vector<Json::object_t::value_type>& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (levels_.size() >= static_cast<size_t>(limits_.max_depth)) {
      throw ApiError(400, fmt::format("the body is nested deeper than {} levels", limits_.max_depth));
    }
    levels_.push_back({.node = add(std::move(container)), .keys = {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Level> levels_;
  std::string key_;
  size_t values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  // The library takes a NUL byte for the end of the text, whatever follows.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw ApiError(400, fmt::format("the body is no JSON: byte {} is NUL", nul));
  }
  TreeBuilder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) throw ApiError(400, "the body is no JSON");
  return builder.take();
}

std::string dump(const Json& tree) {
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace spyre::server
