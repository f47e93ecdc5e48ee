#include "platform/cpu_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/error.h"
#include "base/half.h"
#include "nn/layers/attention.h"
#include "platform/memory.h"

namespace spyre::platform {
namespace {

using graph::Array;

// A trace of a deep model takes some 100 KiB; a step of chunked prefill may have any number of tokens.
constexpr size_t kMaxTraces = 64;

graph::Interpreter make_interpreter(const EngineConfig& config) {
  const DotOrder order = resolve_order(DType::kBF16, parse_order_choice(config.order), CpuFeatures::detected());
  return graph::Interpreter(*config.dtype == DType::kF32 ? graph::EvalMode::kFp32 : graph::EvalMode::kExact, order);
}

float element(const nn::HostTensor& tensor, int64_t index) {
  switch (tensor.dtype) {
    case DType::kF32:
      return tensor.as<float>()[index];
    case DType::kF16:
      return f16_to_f32(tensor.as<uint16_t>()[index]);
    case DType::kBF16:
      return bf16_to_f32(tensor.as<uint16_t>()[index]);
    default:
      SPYRE_CHECK(false, "dtype {}", to_string(tensor.dtype));
  }
}

nn::HostTensor to_fp32(const nn::HostTensor& from) {
  nn::HostTensor to = nn::HostTensor::allocate(DType::kF32, from.shape);
  float* out = to.as<float>();
  if (from.contiguous()) {
    for (int64_t i = 0; i < from.elements(); ++i) out[i] = element(from, i);
    return to;
  }
  SPYRE_CHECK(from.shape.size() == 2, "rank {}", from.shape.size());
  for (int64_t r = 0; r < from.shape[0]; ++r) {
    for (int64_t c = 0; c < from.shape[1]; ++c) *out++ = element(from, r * from.strides[0] + c * from.strides[1]);
  }
  return to;
}

// Calls found(row) for each row of |x| that holds a NaN or an infinity.
template <typename Found>
void for_nonfinite_rows(const Array& x, Found&& found) {
  const int64_t rows = x.type().extent(0), width = x.elements() / rows;
  const std::span<const float> values = x.floats();
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = values.subspan(r * width, width);
    if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) found(r);
  }
}

}  // namespace

void HostWeights::begin(const std::vector<const nn::Parameter*>& /*parameters*/) {
  tensors_.clear();
  bytes_ = 0;
}

void HostWeights::accept(const nn::Parameter& parameter, nn::HostTensor weights) {
  SPYRE_CHECK(weights.shape == parameter.type.extents(), "{}", parameter.name);
  const bool as_it_is = weights.dtype == DType::kF32 && weights.contiguous();
  nn::HostTensor& kept = tensors_[&parameter] = as_it_is ? std::move(weights) : to_fp32(weights);
  if (as_it_is && is_quantised(parameter)) {
    float* values = kept.as<float>();
    for (int64_t i = 0; i < kept.elements(); ++i) values[i] = f16_to_f32(f32_to_f16(values[i]));
  }
  bytes_ += static_cast<int64_t>(kept.bytes());
}

bool HostWeights::is_quantised(const nn::Parameter& parameter) const {
  return std::any_of(parameter.sources.begin(), parameter.sources.end(), [this](const nn::WeightSource& source) {
    const formats::TensorInfo* tensor = checkpoint_.find(source.name);
    return tensor != nullptr && tensor->quantised();
  });
}

Array HostWeights::array(const nn::Parameter& parameter) const {
  const nn::Parameter* owner = &parameter;
  while (owner->alias != nullptr) owner = owner->alias;
  const auto found = tensors_.find(owner);
  if (found == tensors_.end()) {
    throw_error(ErrorCode::kFailedPrecondition, "'{}' is not loaded: load_model comes first", owner->name);
  }
  return Array::view(parameter.type, found->second.as<float>());
}

CpuModelRunner::CpuModelRunner(const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint,
                               std::unique_ptr<nn::CausalLM> model)
    : config_(config),
      checkpoint_(std::move(checkpoint)),
      model_(std::move(model)),
      interpreter_(make_interpreter(config)),
      weights_(*checkpoint_) {
  nn::walk(*model_, [this](const nn::Module& module) {
    if (const auto* layer = dynamic_cast<const nn::Attention*>(&module)) attention_layers_.push_back(layer);
  });
}

void CpuModelRunner::load_model(const std::function<void(const runner::LoadProgress&)>& progress) {
  nn::load_weights(*model_, *checkpoint_, weights_, {.progress = [&](const nn::LoadTotals& totals) {
    if (progress) progress({totals.bytes_done, totals.bytes_total});
  }});
}

runner::KvCacheSpec CpuModelRunner::kv_cache_spec() const {
  int64_t elements = 0;
  for (const nn::Attention* layer : attention_layers_) elements += 2 * layer->kv_type().elements();
  return {.block_size = *config_.block_size,
          .bytes_per_block = elements * *config_.block_size * static_cast<int64_t>(sizeof(float)),
          .num_groups = 1};
}

void CpuModelRunner::initialize_kv_cache(int64_t num_blocks) {
  const runner::KvCacheSpec spec = kv_cache_spec();
  require_memory("KV cache", num_blocks, "blocks", spec.bytes_per_block,
                 "give a smaller max_model_len, num_kv_blocks or kv_cache_bytes");
  if (num_blocks > std::numeric_limits<int32_t>::max() / spec.block_size) {
    throw_error(ErrorCode::kResourceExhausted, "{} KV blocks of {} tokens: slots are numbered up to {}", num_blocks,
                spec.block_size, std::numeric_limits<int32_t>::max());
  }
  pages_.clear();
  try {
    for (const nn::Attention* layer : attention_layers_) {
      pages_[layer] = graph::KvPages::allocate(layer->kv_type(), num_blocks, spec.block_size);
    }
  } catch (const std::bad_alloc&) {
    pages_.clear();
    throw_error(ErrorCode::kResourceExhausted, "no memory for a KV cache of {} blocks x {} bytes", num_blocks,
                spec.bytes_per_block);
  }
  num_blocks_ = num_blocks;
}

nn::Trace CpuModelRunner::trace_body(int64_t tokens, nn::BlockSet blocks) const {
  nn::Tracer tracer(tokens, std::move(blocks));
  const nn::Value hidden = model_->forward(tracer);
  return tracer.finish({hidden});
}

nn::Trace CpuModelRunner::trace_head(int64_t rows) const {
  nn::Tracer tracer(rows);
  const nn::Value hidden =
      tracer.step_input(nn::StepInput::kHidden, tracer.rows_type(*config_.dtype, {model_->hidden_size()}));
  const nn::Value logits = model_->compute_logits(tracer, hidden);
  return tracer.finish({logits});
}

const nn::Trace& CpuModelRunner::body(int64_t tokens) {
  if (const auto found = bodies_.find(tokens); found != bodies_.end()) return found->second;
  if (bodies_.size() >= kMaxTraces) bodies_.clear();
  return bodies_.emplace(tokens, trace_body(tokens, {})).first->second;
}

const nn::Trace& CpuModelRunner::head(int64_t rows) {
  if (const auto found = heads_.find(rows); found != heads_.end()) return found->second;
  if (heads_.size() >= kMaxTraces) heads_.clear();
  return heads_.emplace(rows, trace_head(rows)).first->second;
}

Array CpuModelRunner::step_input(nn::StepInput which, const graph::Type& type, const runner::ForwardBatch& batch,
                                 const Array& hidden) const {
  switch (which) {
    case nn::StepInput::kTokenIds:
      return Array::view(type, batch.token_ids.data());
    case nn::StepInput::kPositions:
      return Array::view(type, batch.positions.data());
    case nn::StepInput::kSlots:
      return Array::view(type, batch.slots.data());
    case nn::StepInput::kBatch:
      return {};
    case nn::StepInput::kHidden:
      return hidden;
  }
  SPYRE_CHECK(false, "step input {}", static_cast<int>(which));
}

Array CpuModelRunner::run(const nn::Trace& trace, const runner::ForwardBatch& batch, const Array& hidden,
                          const AfterSegment& after) {
  std::vector<std::vector<Array>> results;
  for (const nn::Segment& segment : trace.segments) {
    graph::Bindings bindings{.inputs = {}, .parameters = {}, .states = {}, .batch = &batch.attention};
    for (size_t i = 0; i < segment.inputs.size(); ++i) {
      const nn::InputSource& source = segment.inputs[i];
      const graph::Type& type = segment.graph.type(segment.graph.inputs[i]);
      bindings.inputs.push_back(source.from_segment ? results[source.segment][source.output]
                                                    : step_input(source.step_input, type, batch, hidden));
    }
    for (const nn::Parameter* parameter : segment.parameters) bindings.parameters.push_back(weights_.array(*parameter));
    for (const nn::Attention* layer : segment.states) bindings.states.push_back(&pages_.at(layer));
    results.push_back(interpreter_.run(segment.graph, bindings));
    if (after) after(segment, results.back());
  }
  const nn::InputSource& output = trace.outputs[0];
  return results[output.segment][output.output];
}

void CpuModelRunner::forward(const runner::ForwardBatch& batch, runner::Logits& logits) {
  const size_t tokens = batch.token_ids.size();
  SPYRE_CHECK(tokens > 0 && batch.positions.size() == tokens && batch.slots.size() == tokens);
  if (pages_.empty() && !attention_layers_.empty()) {
    throw_error(ErrorCode::kFailedPrecondition, "forward: initialize_kv_cache was not called");
  }
  const Array hidden = tap_ ? run_tapped(batch) : run(body(static_cast<int64_t>(tokens)), batch, {});
  find_nonfinite(hidden, batch, logits);

  logits.vocab_size = vocab_size();
  logits.values.clear();
  if (batch.logits_rows.empty()) return;
  const int64_t rows = std::ssize(batch.logits_rows), width = model_->hidden_size();
  std::vector<float> wanted;
  wanted.reserve(rows * width);
  for (const int32_t row : batch.logits_rows) {
    const std::span<const float> values = hidden.floats().subspan(row * width, width);
    wanted.insert(wanted.end(), values.begin(), values.end());
  }
  const nn::Trace& trace = head(rows);
  const graph::Type& type = trace.segments[0].graph.type(trace.segments[0].graph.inputs[0]);
  const Array scores = run(trace, batch, Array::of(type, std::move(wanted)));
  logits.values.assign(scores.floats().begin(), scores.floats().end());
  if (tap_) tap_({.layer = "logits", .rows = rows, .width = vocab_size(), .values = logits.values});
}

// The body block by block, each block's outputs shown to the tap. One trace per step: a tap is for looking, not
// serving.
Array CpuModelRunner::run_tapped(const runner::ForwardBatch& batch) {
  const auto tokens = static_cast<int64_t>(batch.token_ids.size());
  const nn::Trace blocks = trace_body(tokens, nn::find_blocks(*model_));
  std::string place = "embedding";
  return run(blocks, batch, {}, [&](const nn::Segment& segment, const std::vector<Array>& outputs) {
    if (segment.block != nullptr) place = segment.block->path();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Array& output = outputs[i];
      if (!output.type().is_float_tensor() || output.type().rows_axis() != 0) continue;
      tap_({.layer = place,
            .output = static_cast<int64_t>(i),
            .rows = tokens,
            .width = output.elements() / tokens,
            .values = output.floats()});
    }
    if (segment.block != nullptr) place = "after " + place;
  });
}

// The usual step pays one look at the last hidden states. Only when they are bad is the step run again, block by block
// (it stores the same K and V once more), to name the first place where each row went wrong.
void CpuModelRunner::find_nonfinite(const Array& hidden, const runner::ForwardBatch& batch, runner::Logits& logits) {
  std::map<int64_t, std::string> bad;
  for_nonfinite_rows(hidden, [&](int64_t row) { bad.emplace(row, std::string()); });
  if (bad.empty()) return;
  const nn::Trace blocks = trace_body(static_cast<int64_t>(batch.token_ids.size()), nn::find_blocks(*model_));
  std::string last = "the embedding";
  run(blocks, batch, {}, [&](const nn::Segment& segment, const std::vector<Array>& outputs) {
    if (segment.block != nullptr) last = segment.block->path();
    for (const Array& output : outputs) {
      if (!output.type().is_float_tensor() || output.type().rows_axis() != 0) continue;
      for_nonfinite_rows(output, [&](int64_t row) {
        const auto found = bad.find(row);
        if (found != bad.end() && found->second.empty()) found->second = last;
      });
    }
  });
  for (const auto& [row, place] : bad) {
    logits.row_errors.emplace_back(
        row, fmt::format("non-finite activation after {} at position {} (dtype {}): the model overflows in this dtype, "
                         "or its weights are not finite",
                         place.empty() ? "the final norm" : place, batch.positions[row], to_string(*config_.dtype)));
  }
}

void CpuModelRunner::check_block(const char* what, int32_t block) const {
  if (block < 0 || block >= num_blocks_) {
    throw_error(ErrorCode::kInvalidArgument, "{}: block {} is outside {} blocks", what, block, num_blocks_);
  }
}

void CpuModelRunner::copy_block(int32_t from, int32_t to) {
  check_block("copy_block", from);
  check_block("copy_block", to);
  if (from == to) return;
  for (auto& [layer, pages] : pages_) {
    const auto size = static_cast<std::ptrdiff_t>(pages.block_size * pages.type.elements());
    for (std::vector<float>* values : {&pages.k, &pages.v}) {
      std::copy_n(values->begin() + from * size, size, values->begin() + to * size);
    }
  }
}

void CpuModelRunner::zero_block(int32_t block) {
  check_block("zero_block", block);
  for (auto& [layer, pages] : pages_) {
    const auto size = static_cast<std::ptrdiff_t>(pages.block_size * pages.type.elements());
    for (std::vector<float>* values : {&pages.k, &pages.v}) std::fill_n(values->begin() + block * size, size, 0.0f);
  }
}

nlohmann::json CpuModelRunner::report(const std::string& topic) const {
  const runner::KvCacheSpec spec = kv_cache_spec();
  const nlohmann::json memory = {{"weights_bytes", weights_.bytes()},
                                 {"kv_blocks", num_blocks_},
                                 {"kv_bytes_per_block", spec.bytes_per_block},
                                 {"kv_cache_bytes", num_blocks_ * spec.bytes_per_block}};
  int64_t parameters = 0;
  nn::walk(*model_, [&](const nn::Module& module) {
    for (const nn::Parameter* p : module.parameters()) {
      if (p->alias == nullptr && !p->sources.empty()) parameters += p->type.elements();
    }
  });
  const nlohmann::json model = {{"class", model_->class_name()},
                                {"dtype", to_string(*config_.dtype)},
                                {"parameters", parameters},
                                {"attention_layers", attention_layers_.size()},
                                {"vocab_size", model_->vocab_size()},
                                {"hidden_size", model_->hidden_size()},
                                {"max_model_len", *config_.max_model_len},
                                {"block_size", *config_.block_size}};
  if (topic == "memory") return memory;
  if (topic == "model") return model;
  if (topic == "all") return {{"memory", memory}, {"model", model}};
  return nullptr;
}

}  // namespace spyre::platform
