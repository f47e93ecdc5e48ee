#include "python/native/sampling_params.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "python/native/values.h"

namespace spyre::python {
namespace {

using runner::SamplingParams;

// Fields of vLLM's SamplingParams that stand in neither list below are vLLM's own, whatever the worker does:
//   n                                          one request for each choice, which seeds them apart
//   stop, include_stop_str_in_output, detokenize, skip_special_tokens, spaces_between_special_tokens,
//   output_text_buffer_length                  its detokeniser
//   output_kind, stream_interval, flat_logprobs, skip_clone   the form of its answers
//   repetition_detection                       its scheduler's stop rule, like max_tokens
//   structured_outputs                         a grammar row for each step
//   skip_reading_prefix_cache                  its block manager
//   routed_experts_prompt_start                which part of a report on experts is returned; the report is not built
//   extra_args                                 for custom logits processors and connectors, which a platform refuses
//   _all_stop_token_ids                        stop_token_ids, and EOS even where ignore_eos takes it out of the game
//   _watermarking_skipped                      its metrics
struct Names {
  Name temperature{"temperature"}, top_p{"top_p"}, top_k{"top_k"}, min_p{"min_p"}, seed{"seed"};
  Name max_tokens{"max_tokens"}, min_tokens{"min_tokens"}, ignore_eos{"ignore_eos"};
  Name logprobs{"logprobs"}, prompt_logprobs{"prompt_logprobs"};
  Name stop_token_ids{"stop_token_ids"}, eos_token_id{"_eos_token_id"}, eos_token_ids{"eos_token_ids"};
  Name presence_penalty{"presence_penalty"}, frequency_penalty{"frequency_penalty"};
  Name repetition_penalty{"repetition_penalty"};
  Name logit_bias{"logit_bias"}, allowed_token_ids{"allowed_token_ids"};
  Name bad_words{"bad_words"}, bad_words_token_ids{"_bad_words_token_ids"};

  // Not built, and each changes the tokens or what the answer holds.
  Name unsupported[6] = {Name{"watermarking"},          Name{"logprob_token_ids"},
                         Name{"prompt_logprob_start"},  Name{"prompt_logprob_token_ids"},
                         Name{"thinking_token_budget"}, Name{"trace_decode_token_ids"}};
};

const Names& names() {
  static const Names names;
  return names;
}

// Calls |read| with the attribute when there is one and it is not None.
template <typename Read>
void with(nb::handle params, const Name& name, const Read& read) {
  const nb::object value = find_attribute(params, name);
  if (value.is_valid() && !value.is_none()) read(value, name.text);
}

void read(nb::handle params, const Name& name, double& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_double(value, field); });
}
void read(nb::handle params, const Name& name, int64_t& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_int(value, field); });
}
void read(nb::handle params, const Name& name, bool& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_bool(value, field); });
}
void read(nb::handle params, const Name& name, std::optional<int32_t>& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_int32(value, field); });
}
void read(nb::handle params, const Name& name, std::vector<int32_t>& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_ids(value, field); });
}
void read(nb::handle params, const Name& name, std::optional<std::vector<int32_t>>& out) {
  with(params, name, [&out](nb::handle value, std::string_view field) { out = read_ids(value, field); });
}

// A negative seed is taken as the unsigned number of the same 64 bits, as the server takes it.
uint64_t read_seed(nb::handle value, std::string_view field) {
  if (PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr())) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() == nullptr) return large;
    PyErr_Clear();
  }
  return static_cast<uint64_t>(read_int(value, field));
}

std::vector<std::pair<int32_t, float>> read_bias(nb::handle value, std::string_view field) {
  if (!PyDict_Check(value.ptr())) {
    throw_error(ErrorCode::kInvalidArgument, "{} is of type {}, it must be a dict of token ids to numbers", field,
                describe_type(value));
  }
  std::vector<std::pair<int32_t, float>> bias;
  PyObject *token = nullptr, *number = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(value.ptr(), &position, &token, &number) != 0;) {
    const int32_t id = read_int32(token, "logit_bias: a token id");
    bias.emplace_back(id, static_cast<float>(read_double(number, fmt::format("{}[{}]", field, id))));
  }
  return bias;
}

void read_bad_words(nb::handle params, BadWords words, std::vector<std::vector<int32_t>>& out) {
  nb::object value = find_attribute(params, names().bad_words_token_ids);
  std::string_view field = names().bad_words_token_ids.text;
  if (!value.is_valid() || value.is_none()) {
    value = find_attribute(params, names().bad_words);
    field = names().bad_words.text;
    if (!is_set(value)) return;
  }
  const Items items(value, field);
  for (int64_t i = 0; i < items.size(); ++i) {
    if (!PyUnicode_Check(items[i].ptr())) {
      out.push_back(read_ids(items[i], fmt::format("{}[{}]", field, i)));
    } else if (words == BadWords::kMustBeTokens) {
      throw_error(ErrorCode::kInvalidArgument, "{}[{}] is text, and no tokens came with it: the host has no tokenizer",
                  field, i);
    }
  }
}

void read_endings(nb::handle params, SamplingParams& out) {
  read(params, names().ignore_eos, out.ignore_eos);
  read(params, names().stop_token_ids, out.stop_token_ids);
  read(params, names().eos_token_ids, out.eos_token_ids);
  with(params, names().eos_token_id,
       [&out](nb::handle value, std::string_view field) { out.eos_token_ids.push_back(read_int32(value, field)); });
}

void refuse_unsupported(nb::handle params) {
  for (const Name& name : names().unsupported) {
    if (is_set(find_attribute(params, name))) {
      throw_error(ErrorCode::kUnsupported, "{} is not built; leave it out", name.text);
    }
  }
}

}  // namespace

SamplingParams read_sampling_params(nb::handle params, BadWords words) {
  refuse_unsupported(params);
  SamplingParams out;
  read(params, names().temperature, out.temperature);
  read(params, names().top_p, out.top_p);
  read(params, names().top_k, out.top_k);
  read(params, names().min_p, out.min_p);
  with(params, names().seed, [&out](nb::handle value, std::string_view field) { out.seed = read_seed(value, field); });
  if (const nb::object value = find_attribute(params, names().max_tokens); value.is_valid()) {
    constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();  // as far as the model goes
    out.max_tokens = value.is_none() ? kNoLimit : read_int(value, names().max_tokens.text);
  }
  read(params, names().min_tokens, out.min_tokens);
  read(params, names().logprobs, out.logprobs);
  read(params, names().prompt_logprobs, out.prompt_logprobs);
  read(params, names().presence_penalty, out.presence_penalty);
  read(params, names().frequency_penalty, out.frequency_penalty);
  read(params, names().repetition_penalty, out.repetition_penalty);
  with(params, names().logit_bias,
       [&out](nb::handle value, std::string_view field) { out.logit_bias = read_bias(value, field); });
  read(params, names().allowed_token_ids, out.allowed_token_ids);
  read_bad_words(params, words, out.bad_words);
  read_endings(params, out);
  return out;
}

}  // namespace spyre::python
