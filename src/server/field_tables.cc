// The tables of fields.h. vLLM's names and meanings; where OpenAI's differ, vLLM's count.
#include "server/fields.h"

namespace spyre::server {
namespace {

constexpr double kMaxInt = 9007199254740992;  // 2^53: beyond, JSON numbers are not exact everywhere

// What completions and chat share.
constexpr Field kShared[] = {
    {.name = "model",
     .kind = Kind::kString,
     .fallback = "the served model",
     .doc = "A name of /v1/models; another one is a 404."},
    {.name = "stream",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "Send the answer as server-sent events while it is made."},
    {.name = "stream_options",
     .kind = Kind::kObject,
     .doc = "With stream only. include_usage: a last event with the usage and no choices; continuous_usage_stats: "
            "usage in "
            "every event."},
    {.name = "n",
     .kind = Kind::kInteger,
     .fallback = "1",
     .min = 1,
     .bound = Bound::kChoices,
     .doc = "Choices per prompt. Choice i draws from (seed, i); at temperature 0 all are equal."},
    {.name = "seed",
     .kind = Kind::kInteger,
     .min = -9223372036854775808.0,
     .max = 9223372036854775807.0,
     .doc = "The same seed draws the same tokens, whatever else the server does."},

    {.name = "temperature",
     .kind = Kind::kNumber,
     .fallback = "the model's, else 1",
     .min = 0,
     .max = 1e6,
     .doc = "0: always the most probable token."},
    {.name = "top_p",
     .kind = Kind::kNumber,
     .fallback = "the model's, else 1",
     .min = 0,
     .max = 1,
     .above_min = true,
     .doc = "Draw from the most probable tokens that sum to top_p."},
    {.name = "top_k",
     .kind = Kind::kInteger,
     .fallback = "the model's, else 0",
     .min = -1,
     .max = kMaxInt,
     .doc = "Draw from the k most probable tokens; 0 or -1: from all. More than the vocabulary means all."},
    {.name = "min_p",
     .kind = Kind::kNumber,
     .fallback = "the model's, else 0",
     .min = 0,
     .max = 1,
     .doc = "Drop tokens below min_p times the most probable one."},
    {.name = "presence_penalty",
     .kind = Kind::kNumber,
     .fallback = "0",
     .min = -2,
     .max = 2,
     .doc = "Taken from the logits of tokens that the answer has already."},
    {.name = "frequency_penalty",
     .kind = Kind::kNumber,
     .fallback = "0",
     .min = -2,
     .max = 2,
     .doc = "The same, times how often."},
    {.name = "repetition_penalty",
     .kind = Kind::kNumber,
     .fallback = "the model's, else 1",
     .min = 0,
     .max = 1e6,
     .above_min = true,
     .doc = "Divides (or multiplies, below 0) the logits of tokens that prompt or answer have."},
    {.name = "logit_bias",
     .kind = Kind::kBias,
     .bound = Bound::kListEntries,
     .doc = "Token id to a number that is added to its logit; cut to -100 ... 100."},
    {.name = "allowed_token_ids",
     .kind = Kind::kTokenIds,
     .bound = Bound::kListEntries,
     .doc = "Nothing else is drawn. Not empty."},
    {.name = "bad_words",
     .kind = Kind::kStrings,
     .bound = Bound::kListEntries,
     .doc = "Texts that are never generated."},

    {.name = "min_tokens",
     .kind = Kind::kInteger,
     .fallback = "0",
     .min = 0,
     .bound = Bound::kContext,
     .doc = "Before that many tokens nothing ends the answer. At most max_tokens."},
    {.name = "stop",
     .kind = Kind::kStringOrStrings,
     .bound = Bound::kStops,
     .doc = "Texts that end the answer and are not part of it. An empty one is refused."},
    {.name = "stop_token_ids",
     .kind = Kind::kTokenIds,
     .bound = Bound::kListEntries,
     .doc = "Tokens that end the answer."},
    {.name = "ignore_eos", .kind = Kind::kBool, .fallback = "false", .doc = "Go on after the end of the text."},
    {.name = "include_stop_str_in_output",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "The stop text is part of the answer."},
    {.name = "skip_special_tokens",
     .kind = Kind::kBool,
     .fallback = "true",
     .doc = "Leave special tokens out of the text."},
    {.name = "prompt_logprobs",
     .kind = Kind::kInteger,
     .min = -1,
     .bound = Bound::kLogprobs,
     .doc = "Per prompt token, its log-probability and this many of the most probable; -1: the whole vocabulary, where "
            "--max-logprobs -1 allows it. Not with stream."},
    {.name = "truncate_prompt_tokens",
     .kind = Kind::kInteger,
     .min = -1,
     .bound = Bound::kContext,
     .doc = "Keep this many of the prompt's last tokens; -1: as many as fit the context with one token of answer."},
    {.name = "cache_salt",
     .kind = Kind::kString,
     .doc = "Requests with different salts share no cached prefix. Not empty."},
    {.name = "return_token_ids",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "token_ids of each choice, and prompt_token_ids."},
    {.name = "return_tokens_as_token_ids",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "Tokens in logprobs are written as token_id:5."},
    {.name = "request_id",
     .kind = Kind::kString,
     .fallback = "made up",
     .doc = "Becomes part of the answer's id. At most 256 bytes."},

    {.name = "priority",
     .status = Status::kNotBuilt,
     .off = "[0]",
     .doc = "requests are served first come, first served"},
    {.name = "response_format",
     .status = Status::kNotBuilt,
     .off = R"([{"type": "text"}])",
     .doc = "the answer is text; no grammar is applied"},
    {.name = "structured_outputs", .status = Status::kNotBuilt, .doc = "no grammar is applied"},
    {.name = "guided_json", .status = Status::kNotBuilt, .doc = "no grammar is applied"},
    {.name = "guided_regex", .status = Status::kNotBuilt, .doc = "no grammar is applied"},
    {.name = "guided_choice", .status = Status::kNotBuilt, .doc = "no grammar is applied"},
    {.name = "guided_grammar", .status = Status::kNotBuilt, .doc = "no grammar is applied"},
    {.name = "use_beam_search", .status = Status::kNotBuilt, .off = "[false]", .doc = "tokens are drawn one by one"},
    {.name = "length_penalty", .status = Status::kNotBuilt, .off = "[1, 1.0]", .doc = "a field of beam search"},
    {.name = "logits_processors", .status = Status::kNotBuilt, .off = "[[]]", .doc = "code in requests is not run"},
    {.name = "kv_transfer_params", .status = Status::kNotBuilt, .doc = "there is one server per model"},
    {.name = "vllm_xargs", .status = Status::kNotBuilt, .off = "[{}]", .doc = "there are no extensions"},
    {.name = "thinking_token_budget", .status = Status::kNotBuilt, .doc = "reasoning is not told apart"},
    {.name = "repetition_detection", .status = Status::kNotBuilt, .doc = "repetition is not looked for"},

    {.name = "spaces_between_special_tokens",
     .status = Status::kIgnored,
     .doc = "Has no meaning for these tokenizers."},
    {.name = "detokenize",
     .status = Status::kNotBuilt,
     .off = "[true]",
     .doc = "answers are text; return_token_ids adds the ids"},
    {.name = "user", .status = Status::kIgnored, .doc = "Who asks is nobody's business here."},
    {.name = "store", .status = Status::kIgnored, .doc = "Nothing is stored."},
    {.name = "metadata", .status = Status::kIgnored, .doc = "Nothing is stored."},
    {.name = "service_tier", .status = Status::kIgnored, .doc = "There is one."},
    {.name = "prompt_cache_key", .status = Status::kIgnored, .doc = "Equal prefixes are found by themselves."},
    {.name = "safety_identifier", .status = Status::kIgnored, .doc = "Who asks is nobody's business here."},
};

constexpr Field kCompletionOnly[] = {
    {.name = "prompt",
     .kind = Kind::kPrompt,
     .fallback = "required",
     .bound = Bound::kPrompts,
     .doc = "A string, a list of strings, a list of token ids, or a list of lists of token ids. Several prompts give n "
            "choices "
            "each, in order. The text of special tokens is read as these tokens."},
    {.name = "max_tokens",
     .kind = Kind::kInteger,
     .fallback = "16, or what the context leaves",
     .min = 0,
     .max = kMaxInt,
     .doc = "Tokens to generate at most; 0: only score the prompt. Prompt and answer must fit the context."},
    {.name = "logprobs",
     .kind = Kind::kInteger,
     .min = -1,
     .bound = Bound::kLogprobs,
     .doc = "Per token, its log-probability and this many of the most probable; -1: the whole vocabulary, where "
            "--max-logprobs "
            "-1 allows it."},
    {.name = "echo",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "The answer starts with the prompt; with logprobs, these cover it."},
    {.name = "add_special_tokens",
     .kind = Kind::kBool,
     .fallback = "true",
     .doc = "Add BOS where the model's tokenizer does."},
    {.name = "best_of",
     .kind = Kind::kInteger,
     .fallback = "n",
     .min = 1,
     .bound = Bound::kChoices,
     .doc = "Only best_of = n: choices are not ranked."},
    {.name = "suffix", .status = Status::kNotBuilt, .off = R"([""])", .doc = "text is not filled in between"},
    {.name = "prompt_embeds", .status = Status::kNotBuilt, .doc = "a prompt is text or token ids"},
};

constexpr Field kChatTemplateFields[] = {
    {.name = "messages",
     .kind = Kind::kObjects,
     .fallback = "required",
     .doc = "The conversation: objects with role and content. Content is a string or a list of parts of type text."},
    {.name = "tools", .kind = Kind::kObjects, .doc = "Handed to the chat template. Tool calls in an answer stay text."},
    {.name = "add_generation_prompt", .kind = Kind::kBool, .fallback = "true", .doc = "Open the assistant's turn."},
    {.name = "continue_final_message",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "Leave the last message open and continue it. Needs add_generation_prompt false."},
    {.name = "chat_template_kwargs", .kind = Kind::kObject, .doc = "Further variables of the chat template."},
    {.name = "chat_template",
     .status = Status::kNotBuilt,
     .doc = "templates from requests are not trusted; the model's is used"},
    {.name = "mm_processor_kwargs", .status = Status::kNotBuilt, .off = "[{}]", .doc = "messages are text"},
};

constexpr Field kChatOnly[] = {
    {.name = "max_completion_tokens",
     .kind = Kind::kInteger,
     .fallback = "the model's, or what the context leaves",
     .min = 1,
     .max = kMaxInt,
     .doc = "Tokens to generate at most. Prompt and answer must fit the context."},
    {.name = "max_tokens",
     .kind = Kind::kInteger,
     .fallback = "max_completion_tokens",
     .min = 1,
     .max = kMaxInt,
     .doc = "The older name of max_completion_tokens, which wins."},
    {.name = "logprobs",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "The log-probability of each token of the answer."},
    {.name = "top_logprobs",
     .kind = Kind::kInteger,
     .fallback = "0",
     .min = -1,
     .bound = Bound::kLogprobs,
     .doc = "With logprobs: this many of the most probable tokens beside each; -1: the whole vocabulary, where "
            "--max-logprobs -1 "
            "allows it."},
    {.name = "tool_choice",
     .kind = Kind::kAny,
     .fallback = "auto with tools, else none",
     .doc =
         "With tools it must be given as none: tool calls are not parsed, and an answer is text. Without tools auto is "
         "taken, too."},
    {.name = "add_special_tokens",
     .kind = Kind::kBool,
     .fallback = "false",
     .doc = "Add BOS even if the template wrote none. Never doubled."},
    {.name = "echo", .status = Status::kNotBuilt, .off = "[false]", .doc = "in chat; /v1/completions has it"},
    {.name = "documents", .status = Status::kNotBuilt, .off = "[[]]", .doc = "pass them in chat_template_kwargs"},
    {.name = "functions", .status = Status::kNotBuilt, .off = "[[]]", .doc = "the older form of tools"},
    {.name = "function_call",
     .status = Status::kNotBuilt,
     .off = R"(["none"])",
     .doc = "the older form of tool_choice"},
    {.name = "reasoning_effort",
     .status = Status::kNotBuilt,
     .off = R"(["none"])",
     .doc = "pass what the template reads in chat_template_kwargs"},
    {.name = "modalities", .status = Status::kNotBuilt, .off = R"([["text"]])", .doc = "answers are text"},
    {.name = "audio", .status = Status::kNotBuilt, .doc = "answers are text"},
    {.name = "prediction", .status = Status::kNotBuilt, .doc = "nothing is predicted from outside"},
    {.name = "web_search_options", .status = Status::kNotBuilt, .doc = "there is no web search"},
    {.name = "parallel_tool_calls", .status = Status::kIgnored, .doc = "Tool calls in an answer stay text."},
    {.name = "include_reasoning", .status = Status::kIgnored, .doc = "Reasoning is not told apart from the answer."},
    {.name = "verbosity", .status = Status::kIgnored, .doc = "Of models that know it."},
};

constexpr Field kTokenizeOnly[] = {
    {.name = "model",
     .kind = Kind::kString,
     .fallback = "the served model",
     .doc = "A name of /v1/models; another one is a 404."},
    {.name = "prompt", .kind = Kind::kString, .doc = "The text; or messages, not both."},
    {.name = "add_special_tokens",
     .kind = Kind::kBool,
     .fallback = "true for prompt, false for messages",
     .doc = "Add BOS where the model's tokenizer does."},
    {.name = "return_token_strs", .kind = Kind::kBool, .fallback = "false", .doc = "Also the text of each token."},
};

constexpr Field kDetokenize[] = {
    {.name = "model",
     .kind = Kind::kString,
     .fallback = "the served model",
     .doc = "A name of /v1/models; another one is a 404."},
    {.name = "tokens", .kind = Kind::kTokenIds, .fallback = "required", .doc = "Token ids."},
};

std::vector<Field> join(std::initializer_list<std::span<const Field>> parts) {
  std::vector<Field> out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace

std::span<const Field> completion_fields() {
  static const std::vector<Field> table = join({kCompletionOnly, kShared});
  return table;
}

std::span<const Field> chat_fields() {
  static const std::vector<Field> table = join({kChatTemplateFields, kChatOnly, kShared});
  return table;
}

std::span<const Field> tokenize_fields() {
  static const std::vector<Field> table = join({kTokenizeOnly, kChatTemplateFields});
  return table;
}

std::span<const Field> detokenize_fields() {
  return kDetokenize;
}

}  // namespace spyre::server
