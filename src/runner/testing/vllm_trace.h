// Reads recorded vLLM scheduler traces (tests/data/vllm_traces): one JSON object a line, first a header, then steps,
// last what each user got. An unknown field is a failure: it might be one that a worker must heed.
#pragma once

#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "runner/step.h"

namespace spyre::runner::testing {

using Json = nlohmann::ordered_json;  // the order of num_scheduled_tokens is the batch order

struct TraceStep {
  Step step;
  std::optional<GrammarMask> mask;
  bool has_output = false;  // the recorded worker returned something
  std::vector<RequestId> sampled_ids;
  std::vector<std::vector<int32_t>> sampled_tokens;
};

struct TraceEnd {
  RequestId id;
  std::vector<int32_t> tokens;
  std::string finish_reason;
};

struct Trace {
  bool v2 = false, async = false;
  int64_t block_size = 0, num_blocks = 0, max_num_batched_tokens = 0, max_num_seqs = 0, max_model_len = 0;
  int32_t vocab_size = 0;
  std::vector<TraceStep> steps;
  std::vector<TraceEnd> ends;
};

inline void require_fields(const Json& object, std::initializer_list<const char*> names) {
  const std::set<std::string> known(names.begin(), names.end());
  for (const auto& [name, value] : object.items()) {
    if (!known.contains(name)) throw std::runtime_error("unknown field " + name);
  }
  for (const std::string& name : known) {
    if (!object.contains(name)) throw std::runtime_error("missing field " + name);
  }
}

inline SamplingParams read_sampling(const Json& json) {
  SamplingParams params;  // what the trace leaves out is vLLM's default, and so is what we leave out
  params.temperature = json.value("temperature", params.temperature);
  params.top_p = json.value("top_p", params.top_p);
  params.top_k = json.value("top_k", params.top_k);
  params.min_p = json.value("min_p", params.min_p);
  params.max_tokens = json.value("max_tokens", params.max_tokens);
  params.ignore_eos = json.value("ignore_eos", params.ignore_eos);
  params.stop_token_ids = json.value("stop_token_ids", params.stop_token_ids);
  if (json.contains("seed")) params.seed = json["seed"].get<uint64_t>();
  return params;  // "logprobs" would rank the echo vector: left out
}

inline NewRequest read_new(const Json& json, bool v2) {
  require_fields(
      json, {"req_id", "prompt_token_ids", "prefill_token_ids", "block_ids", "num_computed_tokens", "sampling_params"});
  NewRequest request{.id = json["req_id"],
                     .prompt_token_ids = json["prompt_token_ids"],
                     .block_ids = json["block_ids"],
                     .num_computed_tokens = json["num_computed_tokens"],
                     .sampling = read_sampling(json["sampling_params"])};
  if (json["prefill_token_ids"].is_null() == v2) throw std::runtime_error("prefill_token_ids against the contract");
  if (v2) request.prefill_token_ids = json["prefill_token_ids"].get<std::vector<int32_t>>();
  return request;
}

inline std::vector<CachedRequest> read_cached(const Json& json, bool v2) {
  require_fields(json, {"req_ids", "resumed_req_ids", "new_token_ids", "all_token_ids", "new_block_ids",
                        "num_computed_tokens", "num_output_tokens"});
  if (!json["new_token_ids"].empty()) throw std::runtime_error("new_token_ids is for pipeline parallelism only");
  if (v2 && !(json["all_token_ids"].empty() && json["resumed_req_ids"].empty())) {
    throw std::runtime_error("the first contract's fields in the second");
  }
  const std::set<std::string> resumed = json["resumed_req_ids"];
  std::vector<CachedRequest> requests;
  for (size_t i = 0; i < json["req_ids"].size(); ++i) {
    CachedRequest request{.id = json["req_ids"].at(i),
                          .num_computed_tokens = json["num_computed_tokens"].at(i),
                          .num_output_tokens = json["num_output_tokens"].at(i)};
    request.resumed = resumed.contains(request.id);
    if (json["all_token_ids"].contains(request.id)) {
      request.all_token_ids = json["all_token_ids"][request.id].get<std::vector<int32_t>>();
    }
    if (!json["new_block_ids"].at(i).is_null()) request.new_block_ids = json["new_block_ids"][i].get<BlockIds>();
    requests.push_back(std::move(request));
  }
  return requests;
}

inline TraceStep read_step(const Json& line, bool v2) {
  const Json& so = line["scheduler_output"];
  require_fields(so, {"scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens",
                      "total_num_scheduled_tokens", "finished_req_ids", "preempted_req_ids",
                      "has_structured_output_requests", "pending_structured_output_tokens", "new_block_ids_to_zero"});
  TraceStep result;
  for (const Json& request : so["scheduled_new_reqs"]) result.step.new_requests.push_back(read_new(request, v2));
  result.step.cached_requests = read_cached(so["scheduled_cached_reqs"], v2);
  for (const auto& [id, tokens] : so["num_scheduled_tokens"].items()) {
    result.step.num_scheduled_tokens.emplace_back(id, tokens.get<int64_t>());
  }
  if (result.step.total_tokens() != so["total_num_scheduled_tokens"]) throw std::runtime_error("token total");
  result.step.finished = so["finished_req_ids"];
  result.step.preempted = so["preempted_req_ids"];
  if (!so["new_block_ids_to_zero"].is_null()) {
    result.step.blocks_to_zero = so["new_block_ids_to_zero"].get<std::vector<int32_t>>();
  }
  if (const Json& grammar = line["grammar_output"]; !grammar.is_null()) {
    result.mask.emplace();
    result.mask->request_ids = grammar["structured_output_request_ids"];
    for (const Json& row : grammar["rows"]) result.mask->rows.push_back(row["words"]);
  }
  if (const Json& sampled = line["sampled"]; !sampled.is_null()) {
    result.has_output = true;
    result.sampled_ids = sampled["req_ids"];
    result.sampled_tokens = sampled["token_ids"];
  }
  return result;
}

inline Trace read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  Trace trace;
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text);
    const std::string kind = line.value("kind", "step");
    if (kind == "header") {
      trace.v2 = line["contract"] == "V2";
      trace.async = line["async_scheduling"];
      trace.block_size = line["block_size"];
      trace.num_blocks = line["num_blocks"];
      trace.max_num_batched_tokens = line["max_num_batched_tokens"];
      trace.max_num_seqs = line["max_num_seqs"];
      trace.max_model_len = line["max_model_len"];
      trace.vocab_size = line["vocab_size"];
    } else if (kind == "end") {
      if (line["steps"] != trace.steps.size()) throw std::runtime_error("steps are missing");
      for (const Json& o : line["outputs"]) trace.ends.push_back({o["req_id"], o["token_ids"], o["finish_reason"]});
    } else {
      if (line["step"] != trace.steps.size()) throw std::runtime_error("steps are out of order");
      trace.steps.push_back(read_step(line, trace.v2));
    }
  }
  if (trace.ends.empty()) throw std::runtime_error(path + " has no end");
  return trace;
}

}  // namespace spyre::runner::testing
