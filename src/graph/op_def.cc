#include "graph/op_def.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

// Levenshtein distance, for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::vector<const OpDef*> make_table() {
  std::vector<const OpDef*> table;
  for (const std::span<const OpDef> family : {unary_ops(), binary_ops()}) {
    for (const OpDef& def : family) table.push_back(&def);
  }
  for (const OpDef* def : {&scale_op(), &offset_op(), &convert_op(), &matmul_op(), &linear_op(), &reshape_op(),
                           &transpose_op(), &slice_op(), &concat_op(), &broadcast_op()}) {
    table.push_back(def);
  }
  for (const OpDef& def : reduce_ops()) table.push_back(&def);
  for (const OpDef* def : {&softmax_op(), &rms_norm_op(), &layer_norm_op(), &gather_rows_op(), &rotary_op(),
                           &rotate_2x2_op(), &kv_store_op(), &attention_op()}) {
    table.push_back(def);
  }
  return table;
}

AttrKind kind_of(const Attribute& value) {
  return static_cast<AttrKind>(value.index());
}
static_assert(std::is_same_v<std::variant_alternative_t<0, Attribute>, int64_t>);
static_assert(std::is_same_v<std::variant_alternative_t<1, Attribute>, double>);
static_assert(std::is_same_v<std::variant_alternative_t<2, Attribute>, std::string>);
static_assert(std::is_same_v<std::variant_alternative_t<3, Attribute>, std::vector<int64_t>>);

void check_attributes(const Op& op) {
  constexpr auto kCode = ErrorCode::kInvalidArgument;
  const std::vector<AttrDef>& defs = op.def->attributes;
  for (size_t i = 1; i < op.attributes.size(); ++i) {
    if (op.attributes[i - 1].name >= op.attributes[i].name) {
      throw_error(kCode, "{}: attribute '{}' is given twice or out of order", op.name(), op.attributes[i].name);
    }
  }
  for (const NamedAttribute& attribute : op.attributes) {
    const auto def = std::find_if(defs.begin(), defs.end(), [&](const AttrDef& d) { return d.name == attribute.name; });
    if (def == defs.end()) throw_error(kCode, "{} has no attribute '{}'", op.name(), attribute.name);
    if (kind_of(attribute.value) != def->kind) {
      throw_error(kCode, "{}: attribute '{}' must be {}, got {}", op.name(), attribute.name, to_string(def->kind),
                  to_string(kind_of(attribute.value)));
    }
    const double* number = std::get_if<double>(&attribute.value);
    if (number != nullptr && !std::isfinite(static_cast<float>(*number))) {
      throw_error(kCode, "{}: attribute '{}' is {}, it must be finite in fp32", op.name(), attribute.name, *number);
    }
  }
  for (const AttrDef& def : defs) {
    const bool present = std::any_of(op.attributes.begin(), op.attributes.end(),
                                     [&](const NamedAttribute& attribute) { return attribute.name == def.name; });
    if (!present) throw_error(kCode, "{} needs the attribute '{}'", op.name(), def.name);
  }
}

}  // namespace

std::string_view to_string(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return "an integer";
    case AttrKind::kFloat:
      return "a number";
    case AttrKind::kString:
      return "a string";
    case AttrKind::kInts:
      return "a list of integers";
  }
  return "?";
}

std::string_view to_string(OpFamily family) {
  switch (family) {
    case OpFamily::kUnary:
      return "unary";
    case OpFamily::kBinary:
      return "binary";
    case OpFamily::kReduce:
      return "reduce";
    case OpFamily::kNorm:
      return "norm";
    case OpFamily::kMatmul:
      return "matmul";
    case OpFamily::kView:
      return "view";
    case OpFamily::kGather:
      return "gather";
    case OpFamily::kCall:
      return "call";
    case OpFamily::kOther:
      return "other";
  }
  return "?";
}

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> table = make_table();
  return table;
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* def : all_ops()) {
    if (def->name == name) return def;
  }
  return nullptr;
}

const OpDef& op_named(std::string_view name) {
  if (const OpDef* def = find_op(name)) return *def;
  std::string near;
  if (name.size() <= 32) {
    for (const OpDef* def : all_ops()) {
      if (edit_distance(name, def->name) <= 2)
        near += (near.empty() ? "; did you mean " : ", ") + std::string(def->name);
    }
  }
  throw_error(ErrorCode::kInvalidArgument, "unknown operator '{}'{}", name.substr(0, 64), near);
}

std::vector<Type> infer_types(const Op& op, std::span<const Type> operand_types) {
  constexpr auto kCode = ErrorCode::kInvalidArgument;
  const OpDef& def = *op.def;
  const int count = static_cast<int>(operand_types.size());
  if (count < def.min_inputs || count > def.max_inputs) {
    const std::string range = def.min_inputs == def.max_inputs
                                  ? std::to_string(def.min_inputs)
                                  : fmt::format("{} to {}", def.min_inputs, def.max_inputs);
    throw_error(kCode, "{} takes {} operands, got {}", def.name, range, count);
  }
  check_attributes(op);
  std::vector<Type> results = def.infer({op, operand_types});
  for (const Type& type : results) {
    try {
      type.validate();
    } catch (const Error& error) {
      throw_error(kCode, "{}: result {}", def.name, error.what());
    }
  }
  return results;
}

void violate(const Op& op, std::string_view number, const std::string& detail) {
  const std::vector<Constraint>& table = op.def->constraints;
  const auto it = std::find_if(table.begin(), table.end(), [&](const Constraint& c) { return c.number == number; });
  SPYRE_CHECK(it != table.end(), "{} has no constraint {}", op.name(), number);
  throw_error(ErrorCode::kInvalidArgument, "{} {}: {}, but {}", op.name(), number, it->text, detail);
}

}  // namespace spyre::graph
