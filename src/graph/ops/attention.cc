// attention: paged attention of the rows of a step over the KV pages of a layer (docs/numerics.md §6).
#include <algorithm>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

constexpr auto kCode = ErrorCode::kInvalidArgument;

std::vector<Type> infer(const InferInput& in) {
  const Op& op = in.op;
  const Type &q = in.types[0], &state = in.types[1], &batch = in.types[2];
  require(op, state.is_state(), "C1", "it is {}", state.to_string());
  require(op, q.is_tensor() && q.dtype == state.dtype, "C2", "q is {} and the state {}", q.to_string(),
          state.to_string());
  require(op, q.rank() == 3 && !rows_within(q, 1, 3) && q.dims[2] == state.dims[1], "C3", "q is {} and the state {}",
          q.to_string(), state.to_string());
  require(op, q.extent(1) % state.extent(0) == 0, "C4", "there are {} query heads and {} kv heads", q.extent(1),
          state.extent(0));
  require(op, batch.kind == TypeKind::kBatch, "C5", "it is {}", batch.to_string());
  const double scale = op.float_attr("scale"), softcap = op.float_attr("softcap");
  const int64_t window = op.int_attr("window");
  require(op, scale > 0 && softcap >= 0 && window >= 0, "C6", "scale is {}, softcap {}, window {}", scale, softcap,
          window);
  return {q};
}

void check_batch(const AttentionBatch& batch, const KvPages& pages, int64_t tokens) {
  const int64_t sequences = batch.sequences();
  if (batch.block_size != pages.block_size) {
    throw_error(kCode, "attention: the batch has blocks of {}, the cache of {}", batch.block_size, pages.block_size);
  }
  if (static_cast<int64_t>(batch.query_start.size()) != sequences + 1 || batch.max_blocks < 0 ||
      static_cast<int64_t>(batch.block_table.size()) < sequences * batch.max_blocks) {
    throw_error(kCode, "attention: {} sequences with {} query starts and {} block ids in rows of {}", sequences,
                batch.query_start.size(), batch.block_table.size(), batch.max_blocks);
  }
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t first = batch.query_start[i], last = batch.query_start[i + 1], length = batch.seq_lens[i];
    if (first < 0 || last < first || last > tokens || last - first > length) {
      throw_error(kCode, "attention: sequence {} has rows {} .. {} of {} and {} tokens", i, first, last, tokens,
                  length);
    }
    const int64_t used = (length + batch.block_size - 1) / batch.block_size;
    if (used > batch.max_blocks) {
      throw_error(kCode, "attention: sequence {} has {} tokens but a table of {} blocks of {}", i, length,
                  batch.max_blocks, batch.block_size);
    }
    for (const int32_t block : batch.blocks(i).first(used)) {
      if (block < 0 || block >= pages.num_blocks) {
        throw_error(kCode, "attention: sequence {} names block {} of {}", i, block, pages.num_blocks);
      }
    }
  }
}

// K and V of one sequence and kv head, token after token.
struct Keys {
  std::vector<float> k, v;
};

Keys gather_keys(const AttentionBatch& batch, const KvPages& pages, int64_t sequence, int64_t head) {
  const int64_t length = batch.seq_lens[sequence], d = pages.type.extent(1);
  Keys keys{std::vector<float>(length * d), std::vector<float>(length * d)};
  for (int64_t t = 0; t < length; ++t) {
    const int64_t block = batch.blocks(sequence)[t / batch.block_size];
    const size_t from = pages.index(block * batch.block_size + t % batch.block_size, head);
    std::copy_n(pages.k.begin() + from, d, keys.k.begin() + t * d);
    std::copy_n(pages.v.begin() + from, d, keys.v.begin() + t * d);
  }
  return keys;
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const KvPages& pages = *context.states[1];
  const AttentionBatch& batch = *context.batch;
  const int64_t heads = type.extent(1), d = type.extent(2), group = heads / pages.type.extent(0);
  const int64_t window = context.op.int_attr("window");
  check_batch(batch, pages, type.extent(0));
  AttentionMath math;
  math.dtype = rounding_dtype(context, type.dtype);
  math.order = context.order(math.dtype);
  math.scale = static_cast<float>(context.op.float_attr("scale"));
  math.soft_cap = static_cast<float>(context.op.float_attr("softcap"));

  Array y = Array::zeros(type);  // rows that belong to no sequence stay zero
  const float* q = context.inputs[0]->floats().data();
  float* out = y.mutable_floats().data();
  for (int64_t i = 0; i < batch.sequences(); ++i) {
    if (batch.query_start[i] == batch.query_start[i + 1]) continue;
    for (int64_t kv_head = 0; kv_head < pages.type.extent(0); ++kv_head) {
      const Keys keys = gather_keys(batch, pages, i, kv_head);
      for (int64_t row = batch.query_start[i]; row < batch.query_start[i + 1]; ++row) {
        const int64_t position = batch.context(i) + row - batch.query_start[i];
        const auto [first, last] = visible_keys(position, batch.seq_lens[i], batch.causal, window);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const int64_t at = (row * heads + head) * d;
          attend_reference(math, q + at, d, keys.k.data(), d, keys.v.data(), d, first, last, out + at);
        }
      }
    }
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& attention_op() {
  static const OpDef def = {
      .name = "attention",
      .family = OpFamily::kCall,
      .summary =
          "online-softmax attention of each query row over the keys of its sequence (docs/numerics.md, "
          "Attention); query head h reads kv head h / (H / K); softcap 0 and window 0 mean none; rows of no "
          "sequence give 0",
      .operands = "q, state, batch",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"scale", AttrKind::kFloat, std::nullopt},
                     {"softcap", AttrKind::kFloat, Attribute(0.0)},
                     {"window", AttrKind::kInt, Attribute(int64_t{0})}},
      .constraints = {{"C1", "the second operand is a kv cache"},
                      {"C2", "q is a tensor of the dtype of the state"},
                      {"C3", "q is [T, H, D], only T may be the rows dimension and D is the head size of the state"},
                      {"C4", "the query heads H are a multiple of the kv heads"},
                      {"C5", "the third operand is the batch"},
                      {"C6", "scale is above 0, softcap and window at least 0"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
