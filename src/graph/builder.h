// Builder: records operators one by one and infers each result type at once, so that a wrong shape is reported where
// it is written. The methods are the operators; their semantics are in docs/ops.md and ops/*.cc.
//
// Owns the graph until finish(). Single-threaded. Every method throws Error(kInvalidArgument) naming the operator's
// violated constraint.
#pragma once

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace spyre::graph {

class SPYRE_API Builder {
 public:
  explicit Builder(std::string name = "graph");

  ValueId input(std::string name, Type type);
  ValueId parameter(std::string name, Type type, Encoding encoding = Encoding::kDense);
  ValueId state(std::string name, Type type);
  void output(ValueId value);

  // The general form; the named methods below are sugar for it. Missing attributes take their defaults; a negative
  // "axis" counts from the end of the first operand's shape and is recorded as the axis it means. Results are called
  // |result_names| when given, else "0", "1", ...
  std::vector<ValueId> op(std::string_view name, std::vector<ValueId> inputs,
                          std::vector<NamedAttribute> attributes = {}, std::vector<std::string> result_names = {});
  ValueId op1(std::string_view name, std::vector<ValueId> inputs, std::vector<NamedAttribute> attributes = {});

  // elementwise; binary operands broadcast as in numpy (trailing dimensions)
  ValueId add(ValueId a, ValueId b) { return op1("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op1("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op1("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op1("div", {a, b}); }
  ValueId silu(ValueId x) { return op1("silu", {x}); }
  ValueId gelu(ValueId x) { return op1("gelu", {x}); }
  ValueId scale(ValueId x, double factor) { return op1("scale", {x}, {{"factor", factor}}); }
  ValueId offset(ValueId x, double value) { return op1("offset", {x}, {{"value", value}}); }
  ValueId convert(ValueId x, DType to) { return op1("convert", {x}, {{"dtype", std::string(to_string(to))}}); }

  // x[..., K] @ w[K, N]: w is stored the way it is multiplied. linear: x[..., K] @ w[N, K] transposed.
  // |dtype| "" stores the result as x is stored, "f32" leaves the accumulator unrounded (logits).
  ValueId matmul(ValueId x, ValueId w, std::string dtype = "") {
    return op1("matmul", {x, w}, {{"dtype", std::move(dtype)}});
  }
  ValueId linear(ValueId x, ValueId w, std::string dtype = "") {
    return op1("linear", {x, w}, {{"dtype", std::move(dtype)}});
  }

  ValueId rms_norm(ValueId x, ValueId weight, double eps) { return op1("rms_norm", {x, weight}, {{"eps", eps}}); }
  ValueId layer_norm(ValueId x, ValueId weight, ValueId bias, double eps) {
    return op1("layer_norm", {x, weight, bias}, {{"eps", eps}});
  }
  ValueId softmax(ValueId x) { return op1("softmax", {x}); }

  // views; -1 in a shape stands for the rows dimension
  ValueId reshape(ValueId x, std::vector<int64_t> shape) { return op1("reshape", {x}, {{"shape", std::move(shape)}}); }
  ValueId transpose(ValueId x, std::vector<int64_t> perm) { return op1("transpose", {x}, {{"perm", std::move(perm)}}); }
  ValueId slice(ValueId x, int64_t axis, int64_t start, int64_t size) {
    return op1("slice", {x}, {{"axis", axis}, {"size", size}, {"start", start}});
  }
  ValueId concat(std::vector<ValueId> parts, int64_t axis) { return op1("concat", std::move(parts), {{"axis", axis}}); }

  ValueId gather_rows(ValueId table, ValueId ids) { return op1("gather_rows", {table, ids}); }
  ValueId rotary(ValueId x, ValueId cos_sin) { return op1("rotary", {x, cos_sin}); }
  ValueId rotate_2x2(ValueId x, ValueId rotation) { return op1("rotate_2x2", {x, rotation}); }

  // KV cache: kv_store returns the state that attention must read.
  ValueId kv_store(ValueId state, ValueId k, ValueId v, ValueId slots) { return op1("kv_store", {state, k, v, slots}); }
  ValueId attention(ValueId q, ValueId state, ValueId batch, double scale, double softcap = 0, int64_t window = 0);

  std::optional<ValueId> find(const std::string& value_name) const;
  const Type& type(ValueId value) const { return graph_.values[value].type; }
  const Graph& graph() const { return graph_; }
  Graph finish();  // verifies and gives the graph away; the builder is empty afterwards

 private:
  ValueId declare(std::string name, Type type, Role role);

  ValueId add_value(Value value);
  std::string next_name();

  Graph graph_;
  std::unordered_map<std::string, ValueId> names_;
  int64_t next_number_ = 0;
};

}  // namespace spyre::graph
