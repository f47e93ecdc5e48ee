#include "graph/text.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

constexpr int kMaxLines = 1'000'000;
constexpr size_t kMaxOperands = 4096;  // of one operator, attribute list or return line

// ---------------------------------------------------------------------------------------------------------- printing

std::string print_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string print_ints(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(values[i]);
  return out + "]";
}

std::string print_attributes(const Op& op) {
  std::string out;
  for (const NamedAttribute& attribute : op.attributes) {
    bool is_default = false;
    for (const AttrDef& def : op.def->attributes) {
      if (def.name == attribute.name && def.default_value) is_default = *def.default_value == attribute.value;
    }
    if (is_default) continue;
    out += (out.empty() ? " {" : ", ") + attribute.name + "=" + to_string(attribute.value);
  }
  return out.empty() ? out : out + "}";
}

template <typename NameOf>
std::string print_ids(const std::vector<ValueId>& ids, const NameOf& name_of) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i > 0 ? ", %" : "%") + name_of(ids[i]);
  return out;
}

template <typename NameOf>
std::string print_graph(const Graph& graph, const std::string& graph_name, const NameOf& name_of) {
  std::string out = "graph " + graph_name + " {\n";
  const auto declare = [&](std::string_view keyword, ValueId id) {
    const Value& value = graph.values[id];
    out += fmt::format("  {} %{} : {}", keyword, name_of(id), value.type.to_string());
    if (value.encoding != Encoding::kDense) out += fmt::format(" {}", to_string(value.encoding));
    out += '\n';
  };
  for (const ValueId id : graph.inputs) declare("input", id);
  for (const ValueId id : graph.parameters) declare("param", id);
  for (const ValueId id : graph.states) declare("state", id);
  for (const Op& op : graph.ops) {
    out += "  " + print_ids(op.outputs, name_of);
    if (op.outputs.size() == 1) out += " : " + graph.type(op.outputs[0]).to_string();
    out += fmt::format(" = {}({}){}\n", op.name(), print_ids(op.inputs, name_of), print_attributes(op));
  }
  return out + "  return" + (graph.outputs.empty() ? "" : " ") + print_ids(graph.outputs, name_of) + "\n}\n";
}

// ----------------------------------------------------------------------------------------------------------- parsing

// A cursor over one line. Every failure throws a message without the line number; Parser adds it.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) { skip_blanks(); }

  bool at_end() const { return rest_.empty() || rest_.front() == '#'; }
  bool peek(char c) const { return !rest_.empty() && rest_.front() == c; }

  bool accept(char c) {
    if (!peek(c)) return false;
    advance(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }
  void expect_end() const {
    if (!at_end()) fail("expected the end of the line");
  }

  // Letters, digits and "_.-/".
  std::string_view word(std::string_view what) {
    size_t length = 0;
    while (length < rest_.size() && is_value_name(rest_.substr(length, 1))) ++length;
    if (length == 0) fail(fmt::format("expected {}", what));
    const std::string_view result = rest_.substr(0, length);
    advance(length);
    return result;
  }

  int64_t integer() { return number<int64_t>("an integer"); }
  double real() { return number<double>("a number"); }

  std::string quoted() {
    if (!peek('"')) fail("expected a string in double quotes");
    std::string out;
    size_t i = 1;
    for (; i < rest_.size() && rest_[i] != '"'; ++i) {
      if (rest_[i] == '\\' && i + 1 < rest_.size()) ++i;
      if (static_cast<unsigned char>(rest_[i]) < 0x20) fail("control character in a string");
      out += rest_[i];
    }
    if (i >= rest_.size()) fail("a string is not closed");
    advance(i + 1);
    return out;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> values;
    expect('[');
    while (!peek(']')) {
      if (values.size() >= kMaxOperands) fail("the list is too long");
      if (!values.empty()) expect(',');
      values.push_back(integer());
    }
    expect(']');
    return values;
  }

  [[noreturn]] void fail(const std::string& what) const {
    std::string seen;
    for (const char c : rest_.substr(0, 20)) seen += (c >= 0x20 && c < 0x7f) ? c : '?';
    throw_error(ErrorCode::kInvalidArgument, "{} before '{}'", what, seen);
  }

 private:
  void skip_blanks() {
    const size_t start = rest_.find_first_not_of(" \t\r");
    rest_ = start == std::string_view::npos ? std::string_view() : rest_.substr(start);
  }
  void advance(size_t count) {
    rest_.remove_prefix(count);
    skip_blanks();
  }
  template <typename T>
  T number(std::string_view what) {
    T value{};
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc()) fail(fmt::format("expected {}", what));
    advance(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
};

class Parser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      ++number;
      try {
        if (number > kMaxLines) throw_error(ErrorCode::kInvalidArgument, "more than {} lines", kMaxLines);
        parse_line(Line(line));
      } catch (const Error& error) {
        throw_error(error.code(), "line {}: {}", number, error.what());
      }
    }
    if (state_ != State::kDone) throw_error(ErrorCode::kInvalidArgument, "line {}: the graph is not closed", number);
    return builder_.finish();
  }

 private:
  enum class State { kHeader, kBody, kReturned, kDone };

  void parse_line(Line line) {
    if (line.at_end()) return;
    switch (state_) {
      case State::kHeader:
        parse_header(line);
        return;
      case State::kBody:
        parse_statement(line);
        return;
      case State::kReturned:
        line.expect('}');
        line.expect_end();
        state_ = State::kDone;
        return;
      case State::kDone:
        line.fail("text after the graph");
        return;
    }
  }

  void parse_header(Line& line) {
    if (line.word("'graph'") != "graph") line.fail("expected 'graph NAME {'");
    builder_ = Builder(std::string(line.word("a graph name")));
    line.expect('{');
    line.expect_end();
    state_ = State::kBody;
  }

  void parse_statement(Line& line) {
    if (line.peek('%')) return parse_op(line);
    const std::string_view keyword = line.word("a statement");
    if (keyword == "return") {
      for (const ValueId id : values(line)) builder_.output(id);
      state_ = State::kReturned;
    } else if (keyword == "input" || keyword == "param" || keyword == "state") {
      parse_declaration(line, keyword);
    } else {
      line.fail(
          fmt::format("unknown statement '{}' (input, param, state, return or %name = ...)", keyword.substr(0, 32)));
    }
    line.expect_end();
  }

  void parse_declaration(Line& line, std::string_view keyword) {
    std::string name = new_name(line);
    line.expect(':');
    Type type = parse_type(line);
    if (keyword == "input") {
      builder_.input(std::move(name), std::move(type));
    } else if (keyword == "state") {
      builder_.state(std::move(name), std::move(type));
    } else {
      builder_.parameter(std::move(name), std::move(type), parse_encoding(line));
    }
  }

  void parse_op(Line& line) {
    std::vector<std::string> names;
    do {
      if (names.size() >= kMaxOperands) line.fail("too many results");
      names.push_back(new_name(line));
    } while (line.accept(','));
    std::optional<Type> declared;
    if (line.accept(':')) declared = parse_type(line);
    if (declared && names.size() > 1) line.fail("a type is given for one result only");
    line.expect('=');
    const OpDef& def = op_named(line.word("an operator"));
    line.expect('(');
    const std::vector<ValueId> inputs = values(line);
    line.expect(')');
    std::vector<NamedAttribute> attributes;
    if (line.accept('{')) attributes = parse_attributes(line, def);
    line.expect_end();
    const ValueId first = builder_.op(def.name, inputs, std::move(attributes), std::move(names)).front();
    if (declared && *declared != builder_.type(first)) {
      throw_error(ErrorCode::kInvalidArgument, "{} gives {}, the text says {}", def.name,
                  builder_.type(first).to_string(), declared->to_string());
    }
  }

  std::vector<NamedAttribute> parse_attributes(Line& line, const OpDef& def) {
    std::vector<NamedAttribute> attributes;
    while (!line.peek('}')) {
      if (!attributes.empty()) line.expect(',');
      const std::string name(line.word("an attribute"));
      line.expect('=');
      const AttrDef* found = nullptr;
      for (const AttrDef& candidate : def.attributes) {
        if (candidate.name == name) found = &candidate;
      }
      if (found == nullptr) line.fail(fmt::format("{} has no attribute '{}'", def.name, name.substr(0, 32)));
      if (attributes.size() >= def.attributes.size()) line.fail("an attribute is given twice");
      attributes.push_back({name, parse_attribute(line, found->kind)});
    }
    line.expect('}');
    return attributes;
  }

  static Attribute parse_attribute(Line& line, AttrKind kind) {
    switch (kind) {
      case AttrKind::kInt:
        return line.integer();
      case AttrKind::kFloat:
        return line.real();
      case AttrKind::kString:
        return line.quoted();
      case AttrKind::kInts:
        return line.integers();
    }
    return int64_t{0};
  }

  static Type parse_type(Line& line) {
    std::string_view word = line.word("a type");
    Type type;
    if (word == "batch") return Type::batch();
    if (word == "kv") {
      type.kind = TypeKind::kKvCache;
      word = line.word("a dtype");
    }
    type.dtype = parse_dtype(word.substr(0, 32));
    line.expect('[');
    while (!line.peek(']')) {
      if (type.rank() >= kMaxRank) line.fail(fmt::format("a type has at most {} dimensions", kMaxRank));
      if (!type.dims.empty()) line.expect(',');
      const bool rows = line.accept('@');
      type.dims.push_back({line.integer(), rows});
    }
    line.expect(']');
    type.validate();
    return type;
  }

  static Encoding parse_encoding(Line& line) {
    if (line.at_end()) return Encoding::kDense;
    const std::string_view word = line.word("an encoding");
    for (const Encoding encoding : {Encoding::kDense, Encoding::kGroupedInt, Encoding::kFp8}) {
      if (word == to_string(encoding)) return encoding;
    }
    line.fail(fmt::format("unknown encoding '{}' (dense, grouped_int, fp8)", word.substr(0, 32)));
  }

  static std::string new_name(Line& line) {
    line.expect('%');
    return std::string(line.word("a value name"));
  }

  // "%a, %b" up to what is no value; each must be defined.
  std::vector<ValueId> values(Line& line) {
    std::vector<ValueId> ids;
    while (line.peek('%') || !ids.empty()) {
      if (!ids.empty() && !line.accept(',')) break;
      if (ids.size() >= kMaxOperands) line.fail("too many operands");
      const std::string name = new_name(line);
      const std::optional<ValueId> id = builder_.find(name);
      if (!id) line.fail(fmt::format("%{} is not defined", name.substr(0, 64)));
      ids.push_back(*id);
    }
    return ids;
  }

  State state_ = State::kHeader;
  Builder builder_;
};

}  // namespace

std::string to_string(const Attribute& attribute) {
  if (const int64_t* number = std::get_if<int64_t>(&attribute)) return std::to_string(*number);
  if (const double* number = std::get_if<double>(&attribute)) return fmt::format("{}", *number);
  if (const std::string* text = std::get_if<std::string>(&attribute)) return print_string(*text);
  return print_ints(std::get<std::vector<int64_t>>(attribute));
}

std::string print(const Graph& graph) {
  return print_graph(graph, graph.name, [&](ValueId id) -> const std::string& { return graph.values[id].name; });
}

std::string canonical_text(const Graph& graph) {
  std::vector<std::string> names(graph.values.size(), "undefined");
  int64_t next = 0;
  const auto number = [&](ValueId id) { names[id] = std::to_string(next++); };
  for (const std::vector<ValueId>* list : {&graph.inputs, &graph.parameters, &graph.states}) {
    for (const ValueId id : *list) number(id);
  }
  for (const Op& op : graph.ops) {
    for (const ValueId id : op.outputs) number(id);
  }
  return print_graph(graph, "g", [&](ValueId id) -> const std::string& { return names[id]; });
}

Graph parse(std::string_view text) {
  return Parser().parse(text);
}

}  // namespace spyre::graph
