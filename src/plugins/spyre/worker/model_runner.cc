#include "plugins/spyre/worker/model_runner.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "platform/memory.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/device/entry_layout.h"
#include "plugins/spyre/device/step_cost.h"

namespace spyre::worker {

using device::DeviceTensor;
using device::ExecutionMode;
using device::Launch;
using device::TensorSpec;
using nn::StepInput;

namespace {

ExecutionMode execution_mode(const platform::EngineConfig& config) {
  if (config.numerics == "dl16") return ExecutionMode::kDl16;
  return config.checked ? ExecutionMode::kChecked : ExecutionMode::kHost;
}

device::DeviceOptions device_options(const platform::EngineConfig& config, const plugin::Settings& settings) {
  return {.mode = execution_mode(config),
          .features = CpuFeatures::capped_by_environment(),
          .bf16_order = resolve_order(DType::kBF16, parse_order_choice(config.order), CpuFeatures::detected()),
          .threads = config.threads,
          .dl16 = settings.dl16};
}

attention::BucketOptions bucket_options(const platform::EngineConfig& config, const plugin::Settings& settings) {
  return {.block_size = *config.block_size,
          .max_model_len = *config.max_model_len,
          .max_num_batched_tokens = *config.max_num_batched_tokens,
          .max_num_seqs = has_batched_decode(settings.kv_layout) ? *config.max_num_seqs : 0,
          .kv_buckets = settings.kv_buckets,
          .query_buckets = settings.query_buckets};
}

// The tables of a step are shared by all layers.
void require_equal_layers(const std::vector<const nn::Attention*>& layers) {
  const nn::Attention::Options& first = layers.front()->options();
  for (const nn::Attention* layer : layers) {
    const nn::Attention::Options& o = layer->options();
    if (o.kv_heads == first.kv_heads && o.window == first.window) continue;
    throw_error(ErrorCode::kUnsupported,
                "layers with different KV heads or windows ({} KV heads, window {}; and {}, {}) are not built",
                first.kv_heads, first.window, o.kv_heads, o.window);
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

SpyreModelRunner::SpyreModelRunner(const platform::EngineConfig& config, const plugin::Settings& settings,
                                   std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   std::unique_ptr<nn::CausalLM> model)
    : config_(config),
      settings_(settings),
      checkpoint_(std::move(checkpoint)),
      model_(std::move(model)),
      blocks_(settings.whole_model ? nn::BlockSet() : nn::find_blocks(*model_)),
      device_(device_options(config, settings)),
      compiler_({.features = device_.options().features,
                 .bf16_order = device_.options().bf16_order,
                 .threads = device_.options().threads}),
      bucketer_(bucket_options(config, settings)),
      token_ladder_(*config.token_buckets),
      parts_(*model_, blocks_, *config.dtype, token_ladder_.back(), config.enforce_eager),
      attention_times_(settings.kv_layout, {.max_cores = settings.attention_cores, .lx = {}}) {
  nn::walk(*model_, [this](const nn::Module& module) {
    if (const auto* layer = dynamic_cast<const nn::Attention*>(&module)) attention_layers_.push_back(layer);
  });
  SPYRE_CHECK(!attention_layers_.empty(), "{} has no attention layer", model_->class_name());
  if (config_.enforce_eager) {
    log().warn(
        "eager: every operator is a program of its own: nothing stays in the scratchpad between them, and a step "
        "launches each");
  } else if (blocks_.empty() && !settings_.whole_model) {
    log().warn("{} has no list of blocks: it is compiled as one graph", model_->class_name());
  }
  require_equal_layers(attention_layers_);
  log().info("spyre device: kernels {}, bf16 order {}, {} threads{}", to_string(device_.options().features),
             to_string(device_.options().bf16_order), device_.options().threads,
             config.numerics == "dl16" ? ", dl16"
             : config.checked          ? ", checked"
                                       : "");
}

std::string_view SpyreModelRunner::granularity() const {
  if (config_.enforce_eager) return "eager";
  return blocks_.empty() ? "model" : "block";
}

// ---------------------------------------------------------------- compiling

std::shared_ptr<const device::Program> SpyreModelRunner::compile(const Unit& unit) {
  const int64_t before = compiler_.compiles();
  auto program = compiler_.compile(unit.graph, unit.boundary);
  if (ready_ && compiler_.compiles() > before) {
    ++compiles_after_ready_;
    log().warn("compiled graph '{}' while serving: a shape that warm-up has not seen", unit.graph.name);
  }
  return program;
}

CompileUnit SpyreModelRunner::compiling() {
  return [this](const Unit& unit) { return compile(unit); };
}

std::map<const nn::Parameter*, ParameterUse> SpyreModelRunner::parameter_uses() {
  std::map<const nn::Parameter*, ParameterUse> uses;
  for (const TracedPart* part : {&parts_.body(), &parts_.head()}) {
    const auto programs = part->compile(token_ladder_.front(), compiling());
    for (size_t s = 0; s < programs.size(); ++s) {
      const nn::Segment& segment = part->trace().segments[s];
      for (size_t i = 0; i < segment.parameters.size(); ++i) {
        const ParameterUse use{programs[s]->parameter_specs[i], programs[s]->parameter_forms[i]};
        const auto [found, inserted] = uses.emplace(segment.parameters[i], use);
        if (!inserted && (found->second.form != use.form || !(found->second.spec == use.spec))) {
          throw_error(ErrorCode::kUnsupported, "parameter {} is read in two forms by two programs",
                      segment.parameters[i]->name);
        }
      }
    }
  }
  return uses;
}

void SpyreModelRunner::load_model(const std::function<void(const runner::LoadProgress&)>& progress) {
  weights_ = std::make_unique<WeightStore>(device_, parameter_uses());
  nn::load_weights(*model_, *checkpoint_, *weights_,
                   {.team = &device_.team(), .progress = [&](const nn::LoadTotals& totals) {
                      if (progress) progress({totals.bytes_done, totals.bytes_total});
                    }});
}

// ---------------------------------------------------------------- KV cache

runner::KvCacheSpec SpyreModelRunner::kv_cache_spec() const {
  int64_t bytes_per_token = 0;
  for (const nn::Attention* layer : attention_layers_) {
    const nn::Attention::Options& o = layer->options();
    bytes_per_token += 2 * o.kv_heads * o.head_size * static_cast<int64_t>(size_of(o.dtype));
  }
  return {.block_size = *config_.block_size, .bytes_per_block = bytes_per_token * *config_.block_size};
}

void SpyreModelRunner::initialize_kv_cache(int64_t num_blocks) {
  if (weights_ == nullptr) throw_error(ErrorCode::kFailedPrecondition, "the KV cache comes after load_model");
  ready_ = false;
  bodies_.clear();
  heads_.clear();
  hidden_.reset();
  metadata_.reset();
  last_tables_ = nullptr;
  step_launches_.clear();
  kv_.clear();
  num_blocks_ = 0;
  platform::require_memory("the KV cache", num_blocks, "blocks", kv_cache_spec().bytes_per_block,
                           "use fewer KV blocks or a shorter max_model_len");
  std::vector<const nn::Attention*> layers;
  std::vector<TensorSpec> specs;
  // The axes of a state come from compilation: rotary heads are wider on the card.
  const auto programs = parts_.body().compile(token_ladder_.front(), compiling());
  for (size_t s = 0; s < programs.size(); ++s) {
    const nn::Segment& segment = parts_.body().trace().segments[s];
    for (size_t i = 0; i < segment.states.size(); ++i) {
      if (std::find(layers.begin(), layers.end(), segment.states[i]) != layers.end())
        continue;  // store, then attention
      const TensorSpec& state = programs[s]->state_specs[i];
      layers.push_back(segment.states[i]);
      specs.push_back(attention::kv_spec(settings_.kv_layout, state.dtype, num_blocks, *config_.block_size,
                                         state.axes[0], state.axes[1]));
    }
  }
  const std::vector<DeviceTensor> caches = device_.allocate_kv(specs, num_blocks, *config_.block_size);
  for (size_t i = 0; i < layers.size(); ++i) kv_[layers[i]] = caches[i];
  num_blocks_ = num_blocks;
  const nn::InputSource& result = parts_.body().trace().outputs.at(0);
  TensorSpec hidden = programs[result.segment]->output_specs[result.output];
  hidden.axes[0] = device::Axis(token_ladder_.back());
  hidden.layout = device::entry_layout(hidden.dtype, hidden.card());
  hidden_ = device_.allocate(hidden, "activations");
  const nn::Attention::Options& first = attention_layers_.front()->options();
  int64_t group = 1, head_dim = 1;
  for (const nn::Attention* layer : attention_layers_) {
    group = std::max(group, layer->options().heads / first.kv_heads);
    head_dim = std::max(head_dim, layer->options().head_size);
  }
  metadata_ = std::make_unique<attention::MetadataBuilder>(
      device_, bucketer_,
      attention::BuilderOptions{.block_size = *config_.block_size,
                                .max_num_batched_tokens = *config_.max_num_batched_tokens,
                                .max_num_seqs = *config_.max_num_seqs,
                                .max_model_len = *config_.max_model_len,
                                .dtype = *config_.dtype,
                                .kv_heads = first.kv_heads,
                                .group = group,
                                .head_dim = head_dim,
                                .window = first.window,
                                .kv_layout = settings_.kv_layout,
                                .card_tables = device_.options().card_stores()});
}

void SpyreModelRunner::copy_block(int32_t from, int32_t to) {
  for (const auto& [layer, tensor] : kv_) device_.copy_kv_block(tensor, from, to);
}

void SpyreModelRunner::zero_block(int32_t block) {
  for (const auto& [layer, tensor] : kv_) device_.zero_kv_block(tensor, block);
}

// ---------------------------------------------------------------- binding

namespace {

// The last segment that reads each output of each segment; -1 where none does.
std::vector<std::vector<int32_t>> last_readers(const nn::Trace& trace) {
  std::vector<std::vector<int32_t>> last(trace.segments.size());
  for (size_t s = 0; s < trace.segments.size(); ++s) {
    last[s].resize(trace.segments[s].graph.outputs.size(), -1);
    for (const nn::InputSource& source : trace.segments[s].inputs) {
      if (source.from_segment) last[source.segment][source.output] = static_cast<int32_t>(s);
    }
  }
  return last;
}

}  // namespace

std::vector<Launch> SpyreModelRunner::bind(const TracedPart& part, int64_t rows, const StepTensors& inputs,
                                           const std::function<DeviceTensor(const TensorSpec&)>& place_output) {
  const nn::Trace& trace = part.trace();
  const nn::InputSource& result = trace.outputs.at(0);
  const auto is_result = [&](int32_t s, int32_t o) { return s == result.segment && o == result.output; };
  const std::vector<std::vector<int32_t>> last_reader = last_readers(trace);
  std::vector<DeviceTensor> free;
  const auto take = [&](const TensorSpec& spec) {
    const auto found = std::find_if(free.begin(), free.end(), [&](const auto& t) { return t->spec == spec; });
    if (found == free.end()) return device_.allocate(spec, "activations");
    DeviceTensor tensor = *found;
    free.erase(found);
    return tensor;
  };
  const auto programs = part.compile(rows, compiling());
  std::vector<Launch> launches;
  launches.reserve(programs.size());
  for (int32_t s = 0; s < static_cast<int32_t>(programs.size()); ++s) {
    const nn::Segment& segment = trace.segments[s];
    Launch launch{.program = programs[s].get()};
    for (const nn::InputSource& source : segment.inputs) {
      if (source.from_segment) {
        launch.inputs.push_back(launches[source.segment].outputs[source.output]);
      } else if (source.step_input == StepInput::kBatch) {
        launch.inputs.push_back(nullptr);
      } else {
        launch.inputs.push_back(inputs.at(source.step_input));
      }
    }
    for (const nn::Parameter* parameter : segment.parameters) launch.parameters.push_back(weights_->tensor(*parameter));
    for (const nn::Attention* layer : segment.states) launch.states.push_back(kv_.at(layer));
    const std::vector<TensorSpec>& specs = programs[s]->output_specs;
    for (int32_t o = 0; o < static_cast<int32_t>(specs.size()); ++o) {
      launch.outputs.push_back(is_result(s, o) ? place_output(specs[o]) : take(specs[o]));
    }
    launches.push_back(std::move(launch));
    for (const nn::InputSource& source : segment.inputs) {
      if (!source.from_segment || is_result(source.segment, source.output)) continue;
      if (last_reader[source.segment][source.output] == s)
        free.push_back(launches[source.segment].outputs[source.output]);
    }
  }
  return launches;
}

SpyreModelRunner::BodyPlan& SpyreModelRunner::body(int64_t bucket) {
  std::unique_ptr<BodyPlan>& plan = bodies_[bucket];
  if (plan != nullptr) return *plan;
  auto made = std::make_unique<BodyPlan>();
  made->bucket = bucket;
  const TensorSpec ints = TensorSpec::plain(DType::kI32, {bucket});
  made->token_ids = device_.allocate(ints, "step inputs");
  made->positions = device_.allocate(ints, "step inputs");
  made->slots = device_.allocate(ints, "step inputs");
  made->launches = bind(parts_.body(), bucket,
                        {{StepInput::kTokenIds, made->token_ids},
                         {StepInput::kPositions, made->positions},
                         {StepInput::kSlots, made->slots}},
                        [&](const TensorSpec& spec) { return made->hidden = device_.beginning_of(hidden_, spec); });
  plan = std::move(made);
  return *plan;
}

SpyreModelRunner::HeadPlan& SpyreModelRunner::head(int64_t bucket) {
  std::unique_ptr<HeadPlan>& plan = heads_[bucket];
  if (plan != nullptr) return *plan;
  auto made = std::make_unique<HeadPlan>();
  const auto select = compile(parts_.select_rows(bucket));
  // A selection has nothing that pads columns; its sticks are those of the bodies.
  SPYRE_CHECK(select->input_specs[0].layout.device_size == hidden_->spec.layout.device_size, "{} is read as {}",
              hidden_->spec.layout.to_string(), select->input_specs[0].layout.to_string());
  const DeviceTensor selected = device_.allocate(select->output_specs.at(0), "activations");
  made->rows = device_.allocate(select->input_specs.at(1), "step inputs");
  made->select = {.program = select.get(), .inputs = {hidden_, made->rows}, .outputs = {selected}};
  made->launches = bind(parts_.head(), bucket, {{StepInput::kHidden, selected}},
                        [&](const TensorSpec& spec) { return made->logits = device_.allocate(spec, "activations"); });
  plan = std::move(made);
  return *plan;
}

// ---------------------------------------------------------------- running

runner::WarmUpReport SpyreModelRunner::warm_up() {
  SPYRE_CHECK(metadata_ != nullptr, "warm-up before the KV cache");
  const auto start = std::chrono::steady_clock::now();
  for (const int64_t bucket : token_ladder_) {
    device_.prepare(body(bucket).launches);
    const HeadPlan& plan = head(bucket);
    device_.prepare(plan.launches);
    device_.prepare({&plan.select, 1});
  }
  if (settings_.record && !config_.enforce_eager) {
    for (const attention::Variant& variant : bucketer_.all_variants()) variants_.insert(variant);
  }
  warm_up_.compile_seconds = seconds_since(start);
  warm_up_.programs_compiled = compiler_.artifacts();
  warm_up_.variants_recorded = static_cast<int64_t>(variants_.size());

  // One token through every kind of program: kernels allocate their per-thread memory, pages of the weights are
  // touched.
  const auto run_start = std::chrono::steady_clock::now();
  const device::TransferCounters loaded = device_.transfers();
  device_.transfers() = {};
  const int32_t token = 0, position = 0, slot = -1, block = 0, row = 0, length = 1;
  const int32_t query_start[] = {0, 1};
  runner::ForwardBatch batch{
      .token_ids = {&token, 1}, .positions = {&position, 1}, .slots = {&slot, 1}, .logits_rows = {&row, 1}};
  batch.attention = {.block_size = *config_.block_size,
                     .query_start = query_start,
                     .seq_lens = {&length, 1},
                     .block_table = {&block, 1},
                     .max_blocks = 1};
  runner::Logits logits;
  ready_ = false;
  forward(batch, logits);
  warm_up_.execute_seconds = seconds_since(run_start);
  warm_up_card_ns_ = last_step_card_ns();
  load_transfers_ = loaded;
  step_transfers_ = device_.transfers();
  device_.transfers() = {};
  body_rows_ = head_rows_ = {};
  ready_ = true;
  return warm_up_;
}

double SpyreModelRunner::last_step_card_ns() const {
  double ns = 0;
  for (const Launch* launch : step_launches_) {
    ns += device::estimate_step_ns(*launch->program, last_tables_, attention_times_, planned_);
  }
  return ns;
}

void SpyreModelRunner::record_variants(const attention::StepTables& tables) {
  const auto record = [this](const attention::Variant& variant) {
    if (!variants_.insert(variant).second || !ready_) return;
    ++compiles_after_ready_;
    if (settings_.record && !config_.enforce_eager) {
      log().warn("attention variant ({} query rows, {} blocks, {} sequences) compiled while serving", variant.query,
                 variant.blocks, std::max<int64_t>(variant.sequences, 1));
    }
  };
  if (tables.grid.has_value()) return record(*tables.grid);
  for (const attention::SequencePlan& sequence : tables.sequences) record(sequence.variant);
}

void SpyreModelRunner::forward(const runner::ForwardBatch& batch, runner::Logits& logits) {
  if (metadata_ == nullptr) throw_error(ErrorCode::kFailedPrecondition, "forward before initialize_kv_cache");
  const auto tokens = static_cast<int64_t>(batch.token_ids.size());
  const auto rows = static_cast<int64_t>(batch.logits_rows.size());
  const std::optional<int64_t> bucket = attention::round_up_in(token_ladder_, tokens);
  SPYRE_CHECK(bucket.has_value() && tokens > 0, "{} tokens for buckets up to {}", tokens, token_ladder_.back());
  BodyPlan& plan = body(*bucket);
  body_rows_.add(tokens, *bucket);
  const device::TransferCounters before = trace_ != nullptr ? device_.transfers() : device::TransferCounters();
  upload_step(plan, batch);
  const attention::StepTables& tables = metadata_->build(batch.attention, batch.slots);
  record_variants(tables);
  last_tables_ = &tables;

  step_launches_.clear();
  step_rows_.clear();
  if (tap_) {
    run_tapped(plan, tokens, tables);
  } else {
    for (const Launch& launch : plan.launches) step_launches_.push_back(&launch);
    step_rows_.assign(plan.launches.size(), tokens);
  }
  HeadPlan* head_plan = nullptr;
  if (rows > 0) {
    const int64_t head_bucket = *attention::round_up_in(token_ladder_, rows);
    head_plan = &head(head_bucket);
    head_rows_.add(rows, head_bucket);
    device_.upload(head_plan->rows, batch.logits_rows.data(), "logits_rows", rows);
    step_launches_.push_back(&head_plan->select);
    for (const Launch& launch : head_plan->launches) step_launches_.push_back(&launch);
    step_rows_.resize(step_launches_.size(), rows);
  }
  if (!step_launches_.empty()) run_launches(tables);
  logits.vocab_size = model_->vocab_size();
  logits.row_errors.clear();
  logits.values.resize(static_cast<size_t>(rows * logits.vocab_size));
  if (head_plan != nullptr) device_.download(head_plan->logits, logits.values.data(), "logits", rows);
  if (trace_ != nullptr) {
    trace_->add_card_step(step_launches_, &tables, difference(device_.transfers(), before), tokens);
  }
  if (tap_ && rows > 0) tap_({.layer = "logits", .rows = rows, .width = logits.vocab_size, .values = logits.values});
  if (ready_ && device_.first_nonfinite_row(plan.hidden, tokens) >= 0) {
    report_nonfinite(plan, tokens, tables, logits);
  }
}

void SpyreModelRunner::upload_step(const BodyPlan& plan, const runner::ForwardBatch& batch) {
  const HostSpan span(trace_ == nullptr ? nullptr : &trace_->recorder(), "worker", "upload");
  const auto tokens = static_cast<int64_t>(batch.token_ids.size());
  device_.upload(plan.token_ids, batch.token_ids.data(), "token_ids", tokens);
  device_.upload(plan.positions, batch.positions.data(), "positions", tokens);
  device_.upload(plan.slots, batch.slots.data(), "slots", tokens);
}

void SpyreModelRunner::run_launches(const attention::StepTables& tables) {
  if (trace_ == nullptr) return device_.run(step_launches_, step_rows_, &tables);
  for (size_t i = 0; i < step_launches_.size(); ++i) {
    const HostSpan span(&trace_->recorder(), "programs", step_launches_[i]->program->graph.name);
    device_.run(*step_launches_[i], step_rows_[i], &tables);
  }
}

// The body program by program. Each program's outputs are read before the next one runs, which may reuse their memory.
void SpyreModelRunner::run_tapped(const BodyPlan& plan, int64_t rows, const attention::StepTables& tables) {
  std::vector<float> values;
  std::string place = "embedding";
  for (size_t s = 0; s < plan.launches.size(); ++s) {
    device_.run(plan.launches[s], rows, &tables);
    const nn::Segment& segment = parts_.body().trace().segments[s];
    if (segment.block != nullptr) place = segment.block->path();
    for (size_t i = 0; i < plan.launches[s].outputs.size(); ++i) {
      const DeviceTensor& output = plan.launches[s].outputs[i];
      const graph::Type& type = segment.graph.type(segment.graph.outputs[i]);
      const int64_t traced = parts_.body().trace().traced_output[s][i];
      if (traced < 0 || !type.is_float_tensor() || type.rows_axis() != 0) continue;
      const int64_t width = output->spec.logical_elements() / output->spec.axes.at(0).logical();
      values.resize(static_cast<size_t>(rows * width));
      device_.download(output, values.data(), "tap", rows);
      tap_({.layer = place, .output = traced, .rows = rows, .width = width, .values = values});
    }
    if (segment.block != nullptr) place = "after " + place;
  }
}

// Something went to infinity. The step is run again program by program (its stores write what they wrote before), to
// name the first program after which each bad row is not finite.
void SpyreModelRunner::report_nonfinite(const BodyPlan& plan, int64_t rows, const attention::StepTables& tables,
                                        runner::Logits& logits) {
  std::vector<bool> reported(static_cast<size_t>(rows), false);
  for (size_t s = 0; s < plan.launches.size(); ++s) {
    device_.run(plan.launches[s], rows, &tables);
    for (const DeviceTensor& output : plan.launches[s].outputs) {
      for (int64_t row = device_.first_nonfinite_row(output, rows); row >= 0;
           row = device_.first_nonfinite_row(output, rows, row + 1)) {
        if (reported[row]) continue;
        reported[row] = true;
        const nn::Module* block = parts_.body().trace().segments[s].block;
        logits.row_errors.emplace_back(
            row,
            fmt::format("a non-finite activation in {} ({}{})",
                        block ? block->path() : parts_.body().trace().segments[s].graph.name, to_string(*config_.dtype),
                        config_.dtype == DType::kF16 ? "; bfloat16 has the range of fp32" : ""));
      }
    }
  }
}

}  // namespace spyre::worker
