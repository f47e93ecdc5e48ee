#include "plugins/spyre/compiler/lower/card_ops.h"

#include <map>

#include "base/error.h"
#include "graph/op_def.h"

namespace spyre::compiler {
namespace {

using Names = std::vector<std::string>;

// Views that turn out to be copies are "identity"; where they are views nothing is emitted.
const std::map<std::string_view, Names>& table() {
  static const std::map<std::string_view, Names> names = {
      {"neg", {"neg"}},
      {"abs", {"abs"}},
      {"sqrt", {"sqrt"}},
      {"rsqrt", {"rsqrt"}},
      {"reciprocal", {"reciprocal"}},
      {"exp", {"exp"}},
      {"log", {"log"}},
      {"tanh", {"tanh"}},
      {"sigmoid", {"sigmoid"}},
      {"silu", {"silu"}},
      {"relu", {"relu"}},
      {"gelu", {"gelu"}},
      {"gelu_tanh", {"mul", "mul", "add", "tanh", "add", "mul"}},
      {"scale", {"mul"}},
      {"offset", {"add"}},
      {"convert", {"cast"}},
      {"add", {"add"}},
      {"sub", {"sub"}},
      {"mul", {"mul"}},
      {"div", {"realdiv"}},
      {"maximum", {"maximum"}},
      {"minimum", {"minimum"}},
      {"reduce_sum", {"sum"}},
      {"reduce_mean", {"mean"}},
      {"reduce_max", {"max"}},
      {"softmax", {"max", "sub", "exp", "sum", "realdiv"}},
      {"rms_norm", {"exx2", "layernormscale", "layernormnorm"}},
      {"layer_norm", {"exx2", "layernormscale", "layernormnorm"}},
      {"matmul", {"batchmatmul"}},
      {"linear", {"batchmatmul"}},
      {"gather_rows", {"gather"}},
      {"rotary", {"mul", "mul", "add"}},
      {"rotate_2x2", {"mul", "mul", "add"}},
      {"kv_store", {"kv_store"}},
      {"attention", {"attention"}},
      {"concat", {"concat"}},
      {"broadcast", {"identity"}},
      {"reshape", {"identity"}},
      {"transpose", {"identity"}},
      {"slice", {"identity"}},
  };
  return names;
}

}  // namespace

bool has_card_lowering(std::string_view op_name) {
  return table().count(op_name) > 0;
}

std::vector<std::string> card_op_names(const graph::Op& op, int stick) {
  const auto found = table().find(op.name());
  SPYRE_CHECK(found != table().end(), "{}", op.name());
  Names names = found->second;
  if (op.def->family == graph::OpFamily::kReduce && op.int_attr("axis") != stick) names.back() += "nonstick";
  return names;
}

}  // namespace spyre::compiler
