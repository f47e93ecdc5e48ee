#include "python/native/scheduler_output.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "python/native/sampling_params.h"
#include "python/native/values.h"

namespace spyre::python {
namespace {

using runner::BlockIds;
using runner::RequestId;
using runner::Step;

using Scheduled = std::vector<std::pair<RequestId, int64_t>>;

// Fields of a SchedulerOutput that are not read:
//   free_encoder_mm_hashes, ec_manager_metadata   about encoder outputs, of which there are none
//   scheduled_encoder_input_stats                 for the host's log
//   has_structured_output_requests, pending_structured_output_tokens   the host's own order of calls; rows come later
//   num_spec_tokens_to_schedule, skip_drafts      what a drafter should do next; there is none
//   num_common_prefix_blocks                      a hint for a faster attention; empty since 0.33
//   kv_connector_block_state                      the scheduler's own, None in a worker
struct Names {
  Name scheduled_new_reqs{"scheduled_new_reqs"}, scheduled_cached_reqs{"scheduled_cached_reqs"};
  Name num_scheduled_tokens{"num_scheduled_tokens"}, total_num_scheduled_tokens{"total_num_scheduled_tokens"};
  Name finished_req_ids{"finished_req_ids"}, preempted_req_ids{"preempted_req_ids"};
  Name new_block_ids_to_zero{"new_block_ids_to_zero"}, kv_cache_block_copies{"kv_cache_block_copies"};
  Name src_block_id{"src_block_id"}, dst_block_id{"dst_block_id"};
  Name unsupported[9] = {Name{"scheduled_spec_decode_tokens"},
                         Name{"scheduled_encoder_inputs"},
                         Name{"encoder_input_updates"},
                         Name{"num_invalid_spec_tokens"},
                         Name{"kv_connector_metadata"},
                         Name{"ec_connector_metadata"},
                         Name{"aux_output_connector_metadata"},
                         Name{"has_sync_kv_loads"},
                         Name{"block_table_updates"}};  // 0.30 only: whole rows for tables that were appended to

  Name req_id{"req_id"}, prompt_token_ids{"prompt_token_ids"}, prefill_token_ids{"prefill_token_ids"};
  Name block_ids{"block_ids"}, num_computed_tokens{"num_computed_tokens"}, sampling_params{"sampling_params"};
  Name replay_start{"replay_start"};
  Name unsupported_of_request[5] = {Name{"mm_features"}, Name{"pooling_params"}, Name{"lora_request"},
                                    Name{"prompt_embeds"}, Name{"prompt_is_token_ids"}};

  Name req_ids{"req_ids"}, resumed_req_ids{"resumed_req_ids"}, new_token_ids{"new_token_ids"};
  Name all_token_ids{"all_token_ids"}, new_block_ids{"new_block_ids"}, num_output_tokens{"num_output_tokens"};

  Name structured_output_request_ids{"structured_output_request_ids"}, grammar_bitmask{"grammar_bitmask"};
};

const Names& names() {
  static const Names names;
  return names;
}

constexpr const char* kStep = "the scheduler output";
constexpr const char* kCached = "scheduled_cached_reqs";

void refuse_if_set(nb::handle owner, const Name& name) {
  if (is_set(find_attribute(owner, name))) throw_error(ErrorCode::kUnsupported, "{} is not built", name.text);
}

Scheduled read_scheduled(nb::handle output) {
  const Name& name = names().num_scheduled_tokens;
  const nb::object counts = attribute(output, name, kStep);
  if (!PyDict_Check(counts.ptr())) {
    throw_error(ErrorCode::kInvalidArgument, "{} is of type {}, it must be a dict", name.text, describe_type(counts));
  }
  Scheduled scheduled;
  PyObject *id = nullptr, *tokens = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(counts.ptr(), &position, &id, &tokens) != 0;) {
    scheduled.emplace_back(read_string(id, name.text), read_int(tokens, name.text));
  }
  return scheduled;
}

void check_total(nb::handle output, const Step& step) {
  const Name& name = names().total_num_scheduled_tokens;
  const int64_t total = read_int(attribute(output, name, kStep), name.text);
  uint64_t sum = 0;  // wraps where counts are absurd; the worker finds those
  for (const auto& [id, tokens] : step.num_scheduled_tokens) sum += static_cast<uint64_t>(tokens);
  if (sum != static_cast<uint64_t>(total)) {
    throw_error(ErrorCode::kInvalidArgument, "{} is {}, but the requests have {}", name.text, total, sum);
  }
}

// A tuple of lists, one for each KV cache group.
BlockIds read_blocks(nb::handle value, std::string_view field) {
  const Items groups(value, field);
  BlockIds blocks;
  blocks.reserve(groups.size());
  for (int64_t i = 0; i < groups.size(); ++i) blocks.push_back(read_ids(groups[i], field));
  return blocks;
}

// Block ids first: whoever reads what this request should have written there must be found out.
void read_new_request(nb::handle request, runner::NewRequest& out) {
  constexpr const char* kOwner = "a new request";
  const Names& n = names();
  out.block_ids = read_blocks(attribute(request, n.block_ids, kOwner), n.block_ids.text);
  out.num_computed_tokens = read_int(attribute(request, n.num_computed_tokens, kOwner), n.num_computed_tokens.text);
  for (const Name& name : n.unsupported_of_request) refuse_if_set(request, name);
  if (const nb::object start = find_attribute(request, n.replay_start); start.is_valid()) {
    if (read_int(start, n.replay_start.text) != 0) throw_error(ErrorCode::kUnsupported, "replay_start is not built");
  }
  out.prompt_token_ids = read_ids(attribute(request, n.prompt_token_ids, kOwner), n.prompt_token_ids.text);
  const nb::object prefill = find_attribute(request, n.prefill_token_ids);
  if (prefill.is_valid() && !prefill.is_none()) out.prefill_token_ids = read_ids(prefill, n.prefill_token_ids.text);
  const nb::object params = attribute(request, n.sampling_params, kOwner);
  if (params.is_none()) throw_error(ErrorCode::kUnsupported, "sampling_params is None: pooling is not built");
  out.sampling = read_sampling_params(params, BadWords::kMustBeTokens);
}

void read_new(nb::handle requests, ScheduledStep& result) {
  const Name& name = names().req_id;
  const Items items(requests, names().scheduled_new_reqs.text);
  result.step.new_requests.reserve(items.size());
  for (int64_t i = 0; i < items.size(); ++i) {
    const nb::handle item = items[i];
    RequestId id = read_string(attribute(item, name, "a new request"), name.text);
    runner::NewRequest& request = result.step.new_requests.emplace_back();
    request.id = std::move(id);
    try {
      read_new_request(item, request);
    } catch (const std::exception& error) {
      result.refused.emplace_back(request.id, one_line(error));
    }
  }
}

// The columns of a CachedRequestData. Of what is usually empty, an invalid object says so.
struct CachedColumns {
  explicit CachedColumns(nb::handle cached)
      : req_ids(column(cached, names().req_ids)),
        new_block_ids(column(cached, names().new_block_ids)),
        num_computed_tokens(column(cached, names().num_computed_tokens)),
        num_output_tokens(column(cached, names().num_output_tokens)),
        resumed(unless_empty(cached, names().resumed_req_ids)),
        all_token_ids(unless_empty(cached, names().all_token_ids)) {
    if (req_ids.size() != new_block_ids.size() || req_ids.size() != num_computed_tokens.size() ||
        req_ids.size() != num_output_tokens.size()) {
      throw_error(ErrorCode::kInvalidArgument,
                  "{} has {} req_ids, {} new_block_ids, {} num_computed_tokens and {} num_output_tokens", kCached,
                  req_ids.size(), new_block_ids.size(), num_computed_tokens.size(), num_output_tokens.size());
    }
    if (resumed.is_valid() && !PyAnySet_Check(resumed.ptr())) {
      throw_error(ErrorCode::kInvalidArgument, "resumed_req_ids is of type {}, it must be a set",
                  describe_type(resumed));
    }
    if (all_token_ids.is_valid() && !PyDict_Check(all_token_ids.ptr())) {
      throw_error(ErrorCode::kInvalidArgument, "all_token_ids is of type {}, it must be a dict",
                  describe_type(all_token_ids));
    }
  }

  static Items column(nb::handle cached, const Name& name) { return {attribute(cached, name, kCached), name.text}; }
  static nb::object unless_empty(nb::handle cached, const Name& name) {
    nb::object value = find_attribute(cached, name);
    return is_set(value) ? value : nb::object();
  }

  runner::CachedRequest request(int64_t i) const {
    const Names& n = names();
    runner::CachedRequest out{.id = read_string(req_ids[i], n.req_ids.text)};
    out.resumed = resumed.is_valid() && PySet_Contains(resumed.ptr(), req_ids[i].ptr()) == 1;
    if (all_token_ids.is_valid()) {
      PyObject* tokens = PyDict_GetItemWithError(all_token_ids.ptr(), req_ids[i].ptr());
      if (tokens != nullptr) out.all_token_ids = read_ids(tokens, n.all_token_ids.text);
    }
    if (!new_block_ids[i].is_none()) out.new_block_ids = read_blocks(new_block_ids[i], n.new_block_ids.text);
    out.num_computed_tokens = read_int(num_computed_tokens[i], n.num_computed_tokens.text);
    out.num_output_tokens = read_int(num_output_tokens[i], n.num_output_tokens.text);
    return out;
  }

  Items req_ids, new_block_ids, num_computed_tokens, num_output_tokens;
  nb::object resumed, all_token_ids;
};

void read_block_work(nb::handle output, Step& step) {
  const Names& n = names();
  const nb::object zero = find_attribute(output, n.new_block_ids_to_zero);
  if (is_set(zero)) step.blocks_to_zero = read_ids(zero, n.new_block_ids_to_zero.text);
  const nb::object copies = find_attribute(output, n.kv_cache_block_copies);
  if (!is_set(copies)) return;
  const Items items(copies, n.kv_cache_block_copies.text);
  const auto block = [&](int64_t i, const Name& end) {
    return read_int32(attribute(items[i], end, n.kv_cache_block_copies.text), end.text);
  };
  for (int64_t i = 0; i < items.size(); ++i) {
    step.block_copies.push_back({.from = block(i, n.src_block_id), .to = block(i, n.dst_block_id)});
  }
}

void read_cached(nb::handle cached, Step& step) {
  const CachedColumns columns(cached);
  step.cached_requests.reserve(columns.req_ids.size());
  for (int64_t i = 0; i < columns.req_ids.size(); ++i) step.cached_requests.push_back(columns.request(i));
  refuse_if_set(cached, names().new_token_ids);  // pipeline parallelism
}

// What tells who is scheduled with which blocks comes first: it is wanted of a step that is refused, too.
void read_step(nb::handle output, ScheduledStep& result) {
  const Names& n = names();
  Step& step = result.step;
  step.finished = read_strings(attribute(output, n.finished_req_ids, kStep), n.finished_req_ids.text);
  read_new(attribute(output, n.scheduled_new_reqs, kStep), result);
  read_cached(attribute(output, n.scheduled_cached_reqs, kStep), step);
  check_total(output, step);
  const nb::object preempted = find_attribute(output, n.preempted_req_ids);
  if (is_set(preempted)) step.preempted = read_strings(preempted, n.preempted_req_ids.text);
  read_block_work(output, step);
  for (const Name& name : n.unsupported) refuse_if_set(output, name);
}

}  // namespace

ScheduledStep read_scheduler_output(nb::handle output) {
  ScheduledStep result;
  result.step.num_scheduled_tokens = read_scheduled(output);
  try {
    read_step(output, result);
  } catch (const std::exception& error) {
    const std::string reason = one_line(error);  // to who was refused before, the first reason stays
    for (const auto& [id, tokens] : result.step.num_scheduled_tokens) result.refused.emplace_back(id, reason);
  }
  return result;
}

std::optional<runner::GrammarMask> read_grammar_output(nb::handle output) {
  if (output.is_none()) return std::nullopt;
  constexpr const char* kOwner = "the grammar output";
  const Names& n = names();
  runner::GrammarMask mask;
  mask.request_ids =
      read_strings(attribute(output, n.structured_output_request_ids, kOwner), n.structured_output_request_ids.text);
  using Words = nb::ndarray<const int32_t, nb::ndim<2>, nb::device::cpu>;
  const nb::object bitmask = attribute(output, n.grammar_bitmask, kOwner);
  Words words;
  if (!nb::try_cast(bitmask, words, false)) {
    throw_error(ErrorCode::kInvalidArgument, "{} is a {}, it must be an int32 array [rows, words]",
                n.grammar_bitmask.text, describe_type(bitmask));
  }
  const size_t rows = words.shape(0);
  if (rows != mask.request_ids.size()) {
    throw_error(ErrorCode::kUnsupported, "{} has {} rows for {} requests; rows of drafts are not built",
                n.grammar_bitmask.text, rows, mask.request_ids.size());
  }
  const int64_t step = words.stride(1);
  for (size_t i = 0; i < rows; ++i) {
    const int32_t* row = words.data() + static_cast<int64_t>(i) * words.stride(0);
    std::vector<uint32_t>& out = mask.rows.emplace_back(words.shape(1));
    if (step == 1) {
      std::copy_n(row, out.size(), out.begin());
    } else {
      for (size_t j = 0; j < out.size(); ++j) out[j] = static_cast<uint32_t>(row[static_cast<int64_t>(j) * step]);
    }
  }
  return mask;
}

}  // namespace spyre::python
