#include "plugins/spyre/compiler/attention_program.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "plugins/spyre/compiler/labelled_plan.h"

namespace spyre::compiler {

using attention::KvLayout;
using attention::Variant;
using device::BufferHome;

namespace {

constexpr int64_t kMostGathered = 32;  // pages of one gather of a batched decode: an index of one stick

// Labels: k KV head, g group of query heads, q query row, n key, d element of a head; z lane and KV head, of a batched
// decode. b a block of the cache.
class AttentionEmitter {
 public:
  AttentionEmitter(const AttentionShape& shape, const Variant& variant, int64_t cores, RuleLog& log)
      : shape_(shape), variant_(variant), batched_(variant.sequences > 0), plan_(cores, log) {
    const int64_t chunk =
        batched_ ? std::max<int64_t>(1, std::min(kMostGathered / variant.sequences, variant.blocks)) : 1;
    chunks_ = (variant.blocks + chunk - 1) / chunk;
    pages_ = chunk * std::max<int64_t>(variant.sequences, 1);
    plan_.extent('k', shape.kv_heads);
    plan_.extent('g', shape.heads / shape.kv_heads);
    plan_.extent('q', variant.query);
    plan_.extent('d', shape.head_size);
    plan_.extent('n', chunk * shape.block_size);
    plan_.extent('z', variant.sequences * shape.kv_heads);
    rows_ = batched_ ? "zg" : "kgq";
    for (const char* name : {"K cache", "V cache"}) {
      caches_.push_back(plan_.add(name, cache_labels(),
                                  kv_spec(shape.layout, shape.dtype, pages_ * chunks_, shape.block_size,
                                          device::Axis(shape.kv_heads), device::Axis(shape.head_size)),
                                  BufferHome::kState));
    }
  }

  LabelledPlan run() {
    gather_queries();
    for (int64_t page = 0; page < chunks_; ++page) add_page(page);
    const int32_t normal = plan_.op("realdiv", {accumulated_, sum_}, tensor("acc / l", rows_ + "d"));
    if (batched_) {
      plan_.op("identity", {normal}, tensor("output", "zgd", BufferHome::kOutput));
    } else {
      plan_.op("identity", {normal}, tensor("output", "qkgd", BufferHome::kOutput, false));
    }
    return std::move(plan_);
  }

  // After the scratchpad has been planned.
  void account(const device::CardPlan& plan, PageAccount& pages) const {
    for (const auto& [buffer, key] : gathered_) {
      ++pages.gathers;
      pages.device_bytes += plan.buffers[buffer].spec.card_bytes();  // out of the cache
      if (plan.buffers[buffer].lx.resident()) ++(key ? pages.resident_keys : pages.resident_values);
    }
    pages.copies = copies_;
    pages.restickifies = restickifies_;
    for (const device::DeviceOp& op : plan.ops) {
      for (const int32_t b : op.inputs) pages.device_bytes += moved(plan, b);
      for (const int32_t b : op.outputs) pages.device_bytes += moved(plan, b);
    }
  }

 private:
  std::string cache_labels() const { return shape_.layout == KvLayout::kTokenMajor ? "bkd" : "bknd"; }

  // Bytes of a page or of one of its copies that one operation reads from or writes to device memory.
  int64_t moved(const device::CardPlan& plan, int32_t b) const {
    const bool of_page = std::find(page_buffers_.begin(), page_buffers_.end(), b) != page_buffers_.end();
    return of_page && !plan.buffers[b].lx.resident() ? plan.buffers[b].spec.card_bytes() : 0;
  }

  // |rows_inside|: the dimension before the last lies next to the stick, and all others outside of it, as a product
  // wants its matrices; otherwise the default layout.
  int32_t tensor(std::string name, const std::string& labels, BufferHome home = BufferHome::kPool,
                 bool rows_inside = true) {
    return plan_.tensor(std::move(name), labels, shape_.dtype, home, rows_inside);
  }
  int32_t sparse(std::string name) { return plan_.sparse(std::move(name), rows_, shape_.dtype); }

  void gather_queries() {
    if (batched_) {
      const int32_t all = plan_.tensor("query rows", "zgd", shape_.dtype, BufferHome::kInput, true);
      const int32_t index = plan_.index("lanes", {variant_.sequences});
      queries_ = tensor("q", "zgd");
      plan_.gather({all, "-gd"}, {index, "-"}, {queries_, "zgd"});
      return;
    }
    const int32_t all = plan_.tensor("query rows", "qkgd", shape_.dtype, BufferHome::kInput, false);
    const int32_t index = plan_.index("query table", {variant_.query});
    queries_ = tensor("q", "qkgd", BufferHome::kPool, false);
    plan_.gather({all, "-kgd"}, {index, "q"}, {queries_, "qkgd"});
  }

  int32_t page_buffer(int32_t buffer) {
    page_buffers_.push_back(buffer);
    return buffer;
  }

  // K or V of one page: [.., n, d] as the products want it.
  int32_t gather_page(int64_t page, bool key) {
    const std::string name = fmt::format("{} {}", key ? "K" : "V", page);
    const device::TensorSpec spec = kv_spec(shape_.layout, shape_.dtype, pages_, shape_.block_size,
                                            device::Axis(shape_.kv_heads), device::Axis(shape_.head_size));
    const int32_t cache = caches_[key ? 0 : 1];
    if (shape_.layout == KvLayout::kHeadMajor) {
      const int32_t index = plan_.index(name + " entries", {shape_.kv_heads, 1});
      const int32_t got = page_buffer(plan_.add(name, "-knd", spec, BufferHome::kPool));
      plan_.gather({cache, "--nd"}, {index, "k-"}, {got, "-knd"});
      gathered_.emplace_back(got, key);
      return got;
    }
    // One entry, in a row of a stick; of a batched decode one per lane and block.
    const int32_t index = batched_ ? plan_.index(name + " entries", {pages_}) : plan_.index(name + " entry", {1, 32});
    const int32_t got = page_buffer(plan_.add(name, batched_ ? "xkd" : "nkd", spec, BufferHome::kPool));
    if (batched_) plan_.extent('x', spec.axes[0].card());
    plan_.gather({cache, "-kd"}, {index, batched_ ? "-" : "--"}, {got, batched_ ? "xkd" : "nkd"});
    gathered_.emplace_back(got, key);
    ++copies_;
    const std::string order = batched_ ? "znd" : "knd";
    const int32_t permuted = page_buffer(tensor(name + " permuted", order));
    plan_.op("transpose", {{got, batched_ ? "--d" : "nkd"}}, {permuted, order});
    return permuted;
  }

  // The groups of query heads are a batch dimension that the page does not have.
  int32_t cloned(int32_t page, const std::string& labels) {
    if (shape_.layout == KvLayout::kHeadMajor || batched_ || shape_.heads == shape_.kv_heads) return page;
    ++copies_;
    const int32_t clone = page_buffer(tensor(plan_.name(page) + " per group", labels));
    plan_.op("broadcast", {page}, clone);
    return clone;
  }

  int32_t keys_of(int64_t page) {
    const int32_t key = gather_page(page, true);
    const std::string labels = batched_ ? "zdn" : "kdn";
    const int32_t laid = page_buffer(tensor(plan_.name(key) + " restickified", labels));
    plan_.restickify(key, laid);
    ++restickifies_;
    return cloned(laid, "kgdn");
  }

  void add_page(int64_t page) {
    const int32_t keys = keys_of(page), values = cloned(gather_page(page, false), "kgnd");
    const int32_t scores = masked_scores(page, keys);
    const int32_t own = plan_.op("max", {scores}, sparse("page maximum"), 'n');
    const bool first = page == 0;
    const int32_t top = first ? own : plan_.op("maximum", {maximum_, own}, sparse("m"));
    const int32_t shifted = plan_.op("sub", {scores, top}, tensor("s - m", rows_ + "n"));
    const int32_t p = plan_.op("exp", {shifted}, tensor("p", rows_ + "n"));
    const int32_t added = plan_.op("sum", {p}, sparse("page sum"), 'n');
    const int32_t weighted = plan_.op("batchmatmul", {p, values}, tensor("p V", rows_ + "d"), 'n');
    if (first) {
      sum_ = added;
      accumulated_ = weighted;
    } else {
      const int32_t fall = plan_.op("sub", {maximum_, top}, sparse("m before - m"));
      const int32_t factor = plan_.op("exp", {fall}, sparse("r"));
      sum_ = plan_.op("add", {plan_.op("mul", {sum_, factor}, sparse("l r")), added}, sparse("l"));
      const int32_t scaled = plan_.op("mul", {accumulated_, factor}, tensor("acc r", rows_ + "d"));
      accumulated_ = plan_.op("add", {scaled, weighted}, tensor("acc", rows_ + "d"));
    }
    maximum_ = top;
  }

  int32_t masked_scores(int64_t page, int32_t keys) {
    const std::string labels = rows_ + "n";
    int32_t s = plan_.op("batchmatmul", {queries_, keys}, tensor("q K", labels), 'd');
    s = plan_.op("mul", {s}, tensor("scaled", labels));
    if (shape_.soft_cap) {
      for (const char* stage : {"mul", "tanh", "mul"}) s = plan_.op(stage, {s}, tensor("capped", labels));
    }
    if (!batched_) {
      const int32_t tile = tensor(fmt::format("mask {}", page), "qn", BufferHome::kInput);
      return plan_.op("add", {s, tile}, tensor("s", labels));
    }
    // A row of the mask tensor per lane and block, as many times as there are KV heads.
    const int32_t all = tensor(fmt::format("masks {}", page), "zn", BufferHome::kInput);
    const int32_t index = plan_.index("grid masks", {variant_.sequences});
    const int32_t tile = tensor("mask", "zn");
    plan_.gather({all, "-n"}, {index, "-"}, {tile, "zn"});
    return plan_.op("add", {s, tile}, tensor("s", labels));
  }

  const AttentionShape& shape_;
  const Variant& variant_;
  bool batched_;
  LabelledPlan plan_;
  std::string rows_;
  int64_t chunks_ = 0, pages_ = 0;  // gathers of K; blocks that one of them reads
  std::vector<int32_t> caches_, page_buffers_;
  std::vector<std::pair<int32_t, bool>> gathered_;
  int64_t copies_ = 0, restickifies_ = 0;
  int32_t queries_ = -1, maximum_ = -1, sum_ = -1, accumulated_ = -1;
};

AttentionProgram finish(LabelledPlan& plan, const AttentionOptions& options, int64_t cores) {
  AttentionProgram program;
  program.cores = cores;
  plan.finish(options.lx, program.plan, program.names, program.works);
  program.plan.estimated_ns = program_ns(program, device::measured_costs());
  return program;
}

void check(const AttentionShape& shape, RuleLog& log) {
  SPYRE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads over {}", shape.heads, shape.kv_heads);
  require_rule(log, device::Rule::kHeadSize, shape.head_size % 64 == 0,
               [&] { return fmt::format("attention has heads of {} on the card", shape.head_size); });
  require_rule(log, device::Rule::kBlockSize, shape.block_size % 64 == 0,
               [&] { return fmt::format("blocks hold {} tokens", shape.block_size); });
}

}  // namespace

int64_t attention_cores(const AttentionShape& shape, const Variant& variant, std::optional<int64_t> max_cores) {
  if (max_cores.has_value()) return *max_cores;
  const bool narrow = shape.kv_heads * variant.query < device::kCores;
  return shape.layout == KvLayout::kHeadMajor && narrow ? kHeadMajorCores : device::kCores;
}

AttentionProgram attention_program(const AttentionShape& shape, const Variant& variant,
                                   const AttentionOptions& options) {
  RuleLog log;
  check(shape, log);
  SPYRE_CHECK(variant.sequences == 0 || has_batched_decode(shape.layout), "a grid of {}", to_string(shape.layout));
  const int64_t cores = attention_cores(shape, variant, options.max_cores);
  AttentionEmitter emitter(shape, variant, cores, log);
  LabelledPlan plan = emitter.run();
  AttentionProgram program = finish(plan, options, cores);
  emitter.account(program.plan, program.pages);
  program.rules_met = std::move(log);
  return program;
}

AttentionProgram kv_store_program(const AttentionShape& shape, int64_t tokens, const AttentionOptions& options) {
  RuleLog log;
  check(shape, log);
  const int64_t cores = options.max_cores.value_or(device::kCores);
  LabelledPlan plan(cores, log);
  plan.extent('t', tokens);
  plan.extent('k', shape.kv_heads);
  plan.extent('d', shape.head_size);
  const bool head_major = shape.layout == KvLayout::kHeadMajor;
  const device::TensorSpec spec = kv_spec(shape.layout, shape.dtype, 1, shape.block_size, device::Axis(shape.kv_heads),
                                          device::Axis(shape.head_size));
  for (const std::string name : {"K", "V"}) {
    const int32_t cache = plan.add(name + " cache", head_major ? "bknd" : "bkd", spec, BufferHome::kState);
    const int32_t rows = plan.tensor(name + " rows", "tkd", shape.dtype, BufferHome::kInput, false);
    if (!head_major) {
      plan.index_copy({rows, "tkd"}, {plan.index("slots", {tokens}), "t"}, {cache, "-kd"});
      continue;
    }
    const int32_t source = plan.tensor(name + " contiguous", "ktd", shape.dtype, BufferHome::kPool, true);
    plan.op("identity", {rows}, source);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int32_t one = plan.part(source, head, "td");
      plan.index_copy({one, "td"}, {plan.index("rows of a head", {tokens}), "t"}, {cache, "---d"});
    }
  }
  AttentionProgram program = finish(plan, options, cores);
  program.rules_met = std::move(log);
  return program;
}

namespace {

// Whether |next| goes on with what |op| left in the scratchpad: they are one bundle.
bool hands_on(const device::CardPlan& plan, const device::DeviceOp& op, const device::DeviceOp& next) {
  if (op.name == "restickify" || next.name == "restickify") return false;
  const int32_t made = op.outputs[0];
  return plan.buffers[made].lx.resident() &&
         std::find(next.inputs.begin(), next.inputs.end(), made) != next.inputs.end();
}

}  // namespace

double program_ns(const AttentionProgram& program, const device::CostConfig& config) {
  const std::vector<device::DeviceOp>& ops = program.plan.ops;
  double ns = config.launch_ns.value;
  size_t first = 0;
  for (size_t i = 1; i <= ops.size(); ++i) {
    if (i < ops.size() && hands_on(program.plan, ops[i - 1], ops[i])) continue;
    ns += device::bundle_time(config, std::span(program.works).subspan(first, i - first)).total();
    first = i;
  }
  return ns;
}

double AttentionTimes::attention_ns(const AttentionShape& shape, const Variant& variant,
                                    const device::CostConfig& config) {
  const auto [found, inserted] = attention_.try_emplace({shape, variant, config.name}, 0);
  if (inserted) found->second = program_ns(attention_program(shape, variant, options_), config);
  return found->second;
}

double AttentionTimes::kv_store_ns(const AttentionShape& shape, int64_t tokens, const device::CostConfig& config) {
  const auto [found, inserted] = stores_.try_emplace({shape, tokens, config.name}, 0);
  if (inserted) found->second = program_ns(kv_store_program(shape, tokens, options_), config);
  return found->second;
}

}  // namespace spyre::compiler
