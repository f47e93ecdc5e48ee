// Malformed and extreme requests: each gets the status the table says, with the field in its message, and a plain
// request right after it is served.
#include <gmock/gmock.h>

#include "server/testing/test_server.h"

namespace spyre::server {
namespace {

using ::testing::HasSubstr;
using testing::Reply;
using testing::TestServer;

struct Case {
  std::string members;  // of the body, beside the prompt or the messages
  int status;
  std::string names;  // stands in the message; "" for a 200
};

// Sent to both endpoints.
const Case kShared[] = {
    {R"("temperature":-1)", 400, "temperature"},
    {R"("temperature":"hot")", 400, "temperature"},
    {R"("temperature":NaN)", 400, "no JSON"},
    {R"("temperature":Infinity)", 400, "no JSON"},
    {R"("temperature":-Infinity)", 400, "no JSON"},
    {R"("temperature":1e400)", 400, "no JSON"},
    {R"("temperature":1e300)", 400, "temperature"},
    {R"("temperature":true)", 400, "temperature"},
    {R"("temperature":[1])", 400, "temperature"},
    {R"("temperature":{})", 400, "temperature"},
    {R"("temperature":null)", 200, ""},
    {R"("temperature":0)", 200, ""},
    {R"("temperature":1e-300)", 200, ""},
    {R"("temperature":0,"n":3)", 200, ""},
    {R"("top_p":0)", 400, "top_p"},
    {R"("top_p":-0.5)", 400, "top_p"},
    {R"("top_p":1.0001)", 400, "top_p"},
    {R"("top_p":"1")", 400, "top_p"},
    {R"("top_p":1e-300)", 200, ""},
    {R"("top_p":1)", 200, ""},
    {R"("top_k":-2)", 400, "top_k"},
    {R"("top_k":1.5)", 400, "top_k"},
    {R"("top_k":1e300)", 400, "top_k"},
    {R"("top_k":99999999999999999999)", 400, "top_k"},
    {R"("top_k":false)", 400, "top_k"},
    {R"("top_k":"40")", 400, "top_k"},
    {R"("top_k":1000000)", 200, ""},
    {R"("top_k":-1)", 200, ""},
    {R"("top_k":0)", 200, ""},
    {R"("top_k":5.0)", 200, ""},
    {R"("min_p":-0.1)", 400, "min_p"},
    {R"("min_p":1.1)", 400, "min_p"},
    {R"("min_p":[])", 400, "min_p"},
    {R"("min_p":1)", 200, ""},
    {R"("seed":"x")", 400, "seed"},
    {R"("seed":1.5)", 400, "seed"},
    {R"("seed":1e30)", 400, "seed"},
    {R"("seed":18446744073709551615)", 400, "seed"},
    {R"("seed":-9223372036854775808)", 200, ""},
    {R"("seed":9223372036854775807)", 200, ""},
    {R"("presence_penalty":2.01)", 400, "presence_penalty"},
    {R"("presence_penalty":-2.01)", 400, "presence_penalty"},
    {R"("presence_penalty":"")", 400, "presence_penalty"},
    {R"("presence_penalty":-2)", 200, ""},
    {R"("frequency_penalty":3)", 400, "frequency_penalty"},
    {R"("frequency_penalty":-1e308)", 400, "frequency_penalty"},
    {R"("frequency_penalty":{"a":1})", 400, "frequency_penalty"},
    {R"("frequency_penalty":2)", 200, ""},
    {R"("repetition_penalty":0)", 400, "repetition_penalty"},
    {R"("repetition_penalty":-1)", 400, "repetition_penalty"},
    {R"("repetition_penalty":"1")", 400, "repetition_penalty"},
    {R"("repetition_penalty":1e308)", 400, "repetition_penalty"},
    {R"("repetition_penalty":0.001)", 200, ""},
    {R"("logit_bias":[])", 400, "logit_bias"},
    {R"("logit_bias":5)", 400, "logit_bias"},
    {R"("logit_bias":{"x":1})", 400, "logit_bias"},
    {R"("logit_bias":{"":1})", 400, "logit_bias"},
    {R"("logit_bias":{"-1":1})", 400, "logit_bias"},
    {R"("logit_bias":{"502":1})", 400, "logit_bias"},
    {R"("logit_bias":{"99999999999999999999":1})", 400, "logit_bias"},
    {R"("logit_bias":{"5":"1"})", 400, "logit_bias"},
    {R"("logit_bias":{"5":null})", 400, "logit_bias"},
    {R"("logit_bias":{"5":1,"05":2})", 400, "logit_bias"},
    {R"("logit_bias":{"5":1,"5":2})", 400, "twice"},
    {R"("logit_bias":{"5.0":1})", 400, "logit_bias"},
    {R"("logit_bias":{"501":1e308})", 200, ""},
    {R"("logit_bias":{})", 200, ""},
    {R"("allowed_token_ids":[])", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":[502])", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":[-1])", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":["5"])", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":5)", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":[5,5])", 200, ""},
    {R"("allowed_token_ids":[5],"stop_token_ids":[5],"min_tokens":1)", 400, "allowed_token_ids"},
    {R"("allowed_token_ids":[5],"stop_token_ids":[5])", 200, ""},
    {R"("allowed_token_ids":[5,6],"stop_token_ids":[5],"min_tokens":1)", 200, ""},
    {R"("bad_words":"x")", 400, "bad_words"},
    {R"("bad_words":[""])", 400, "bad_words"},
    {R"("bad_words":["  "])", 400, "bad_words"},
    {R"("bad_words":[5])", 400, "bad_words"},
    {R"("bad_words":[])", 200, ""},
    {R"("min_tokens":-1)", 400, "min_tokens"},
    {R"("min_tokens":5)", 400, "min_tokens"},  // max_tokens is 2
    {R"("min_tokens":1e18)", 400, "min_tokens"},
    {R"("min_tokens":[1])", 400, "min_tokens"},
    {R"("min_tokens":2)", 200, ""},
    {R"("stop":"")", 400, "stop"},
    {R"("stop":[""])", 400, "stop"},
    {R"("stop":["a",""])", 400, "stop"},
    {R"("stop":[1])", 400, "stop"},
    {R"("stop":1)", 400, "stop"},
    {R"("stop":{"a":"b"})", 400, "stop"},
    {R"("stop":[["a"]])", 400, "stop"},
    {R"("stop":"\ud800")", 400, "no JSON"},
    {R"("stop":"\u0000")", 200, ""},
    {R"("stop":[])", 200, ""},
    {R"("stop":null)", 200, ""},
    {R"("stop_token_ids":[502])", 400, "stop_token_ids"},
    {R"("stop_token_ids":[-1])", 400, "stop_token_ids"},
    {R"("stop_token_ids":["a"])", 400, "stop_token_ids"},
    {R"("stop_token_ids":[null])", 400, "stop_token_ids"},
    {R"("stop_token_ids":7)", 400, "stop_token_ids"},
    {R"("stop_token_ids":[1e99])", 400, "stop_token_ids"},
    {R"("stop_token_ids":[7])", 200, ""},
    {R"("ignore_eos":"yes")", 400, "ignore_eos"},
    {R"("ignore_eos":1)", 400, "ignore_eos"},
    {R"("include_stop_str_in_output":0)", 400, "include_stop_str_in_output"},
    {R"("skip_special_tokens":"no")", 400, "skip_special_tokens"},
    {R"("n":0)", 400, "n"},
    {R"("n":-1)", 400, "n"},
    {R"("n":129)", 400, "n"},
    {R"("n":1e9)", 400, "n"},
    {R"("n":"2")", 400, "n"},
    {R"("n":1.5)", 400, "n"},
    {R"("n":2)", 200, ""},
    {R"("prompt_logprobs":-2)", 400, "prompt_logprobs"},
    {R"("prompt_logprobs":21)", 400, "prompt_logprobs"},
    {R"("prompt_logprobs":true)", 400, "prompt_logprobs"},
    {R"("prompt_logprobs":-1)", 400, "prompt_logprobs"},
    {R"("prompt_logprobs":0)", 200, ""},
    {R"("prompt_logprobs":1,"stream":true)", 400, "prompt_logprobs"},
    {R"("truncate_prompt_tokens":0)", 400, "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens":-2)", 400, "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens":513)", 400, "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens":"1")", 400, "truncate_prompt_tokens"},
    {R"("cache_salt":"")", 400, "cache_salt"},
    {R"("cache_salt":5)", 400, "cache_salt"},
    {R"("stream":"true")", 400, "stream"},
    {R"("stream":1)", 400, "stream"},
    {R"("stream_options":{"include_usage":true})", 400, "stream_options"},
    {R"("stream":true,"stream_options":5)", 400, "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":"yes"})", 400, "include_usage"},
    {R"("stream":true,"stream_options":{"include_usage":null,"new":true})", 200, ""},
    {R"("model":"other")", 404, "other"},
    {R"("model":"")", 404, "model"},
    {R"("model":5)", 400, "model"},
    {R"("model":null)", 200, ""},
    {R"("model":"tiny\u0000")", 404, "model"},
    {R"("request_id":5)", 400, "request_id"},
    {R"("request_id":"a b\"\n")", 200, ""},
    {R"("return_token_ids":"x")", 400, "return_token_ids"},
    {R"("response_format":{"type":"json_object"})", 400, "response_format"},
    {R"("response_format":{"type":"json_schema","json_schema":{}})", 400, "response_format"},
    {R"("response_format":"text")", 400, "response_format"},
    {R"("response_format":{"type":"text"})", 200, ""},
    {R"("structured_outputs":{"json":{}})", 400, "structured_outputs"},
    {R"("guided_json":{})", 400, "guided_json"},
    {R"("guided_regex":".*")", 400, "guided_regex"},
    {R"("guided_choice":["a"])", 400, "guided_choice"},
    {R"("guided_grammar":"x")", 400, "guided_grammar"},
    {R"("use_beam_search":true)", 400, "use_beam_search"},
    {R"("use_beam_search":false)", 200, ""},
    {R"("length_penalty":2)", 400, "length_penalty"},
    {R"("length_penalty":1.0)", 200, ""},
    {R"("logits_processors":["x"])", 400, "logits_processors"},
    {R"("kv_transfer_params":{"a":1})", 400, "kv_transfer_params"},
    {R"("priority":1)", 400, "priority"},
    {R"("priority":0)", 200, ""},
    {R"("user":"somebody","store":true,"metadata":{"a":"b"},"service_tier":"auto")", 200, ""},
    {R"("no_such_field":{"deep":[1,2,3]})", 200, ""},
    {R"("":1)", 200, ""},
    {R"("x":"\ud800")", 400, "no JSON"},
    {R"("x":"\udc00\ud800")", 400, "no JSON"},
    {"\"x\":\"\xff\xfe\"", 400, "no JSON"},
    {"\"x\":\"\xc0\x80\"", 400, "no JSON"},
    {"\"x\":\"a\x01\"", 400, "no JSON"},
    {R"("x":"\u0000")", 200, ""},
    {R"("n":1,"n":2)", 400, "twice"},
    {R"("x":{"y":1,"y":2})", 400, "twice"},
    {R"("x":01)", 400, "no JSON"},
    {R"("x":+1)", 400, "no JSON"},
    {R"("x":-1e999)", 400, "no JSON"},
    {R"("x":1e-999)", 200, ""},
    {R"("x":undefined)", 400, "no JSON"},
    {R"("x":[1,])", 400, "no JSON"},
    {R"("x":1,)", 400, "no JSON"},
};

const Case kCompletions[] = {
    {R"("prompt":null)", 400, "prompt"},
    {R"("prompt":5)", 400, "prompt"},
    {R"("prompt":true)", 400, "prompt"},
    {R"("prompt":{})", 400, "prompt"},
    {R"("prompt":[])", 400, "prompt"},
    {R"("prompt":[[]])", 400, "prompt"},
    {R"("prompt":[[1],[]])", 400, "prompt"},
    {R"("prompt":[null])", 400, "prompt"},
    {R"("prompt":["a",1])", 400, "prompt"},
    {R"("prompt":[1,"a"])", 400, "prompt"},
    {R"("prompt":[[1],"a"])", 400, "prompt"},
    {R"("prompt":[["a"]])", 400, "prompt"},
    {R"("prompt":[[[1]]])", 400, "prompt"},
    {R"("prompt":[502])", 400, "prompt"},
    {R"("prompt":[-1])", 400, "prompt"},
    {R"("prompt":[1.5])", 400, "prompt"},
    {R"("prompt":[2147483648])", 400, "prompt"},
    {R"("prompt":[1e300])", 400, "prompt"},
    {R"("prompt":[true])", 400, "prompt"},
    {R"("prompt":"","add_special_tokens":false)", 400, "prompt"},
    {R"("prompt":"")", 200, ""},  // BOS alone
    {R"("prompt":["",""])", 200, ""},
    {R"("prompt":"\u0000")", 200, ""},
    {R"("prompt":"<|im_end|><|bos|>")", 200, ""},
    {R"("prompt":[501])", 200, ""},
    {R"("prompt":"a","max_tokens":-1)", 400, "max_tokens"},
    {R"("prompt":"a","max_tokens":"5")", 400, "max_tokens"},
    {R"("prompt":"a","max_tokens":1.5)", 400, "max_tokens"},
    {R"("prompt":"a","max_tokens":1000000)", 400, "1000000"},
    {R"("prompt":"a","max_tokens":9007199254740993)", 400, "max_tokens"},
    {R"("prompt":"a","max_tokens":99999999999999999999999)", 400, "max_tokens"},
    {R"("prompt":"a","max_tokens":null)", 200, ""},
    {R"("prompt":"a","max_tokens":0)", 200, ""},
    {R"("prompt":"a","logprobs":21)", 400, "logprobs"},
    {R"("prompt":"a","logprobs":-1)", 400, "logprobs"},
    {R"("prompt":"a","logprobs":-5)", 400, "logprobs"},
    {R"("prompt":"a","logprobs":true)", 400, "logprobs"},
    {R"("prompt":"a","logprobs":0)", 200, ""},
    {R"("prompt":"a","logprobs":20)", 200, ""},
    {R"("prompt":"a","echo":"yes")", 400, "echo"},
    {R"("prompt":"a","echo":1)", 400, "echo"},
    {R"("prompt":"a","best_of":2)", 400, "best_of"},
    {R"("prompt":"a","best_of":0)", 400, "best_of"},
    {R"("prompt":"a","best_of":2,"n":2)", 200, ""},
    {R"("prompt":"a","suffix":"b")", 400, "suffix"},
    {R"("prompt":"a","suffix":"")", 200, ""},
    {R"("prompt":"a","suffix":null)", 200, ""},
    {R"("prompt":"a","prompt_embeds":"AAAA")", 400, "prompt_embeds"},
    {R"("prompt":"a","add_special_tokens":1)", 400, "add_special_tokens"},
};

const Case kChat[] = {
    {R"("messages":null)", 400, "messages"},
    {R"("messages":5)", 400, "messages"},
    {R"("messages":"hello")", 400, "messages"},
    {R"("messages":{})", 400, "messages"},
    {R"("messages":[])", 400, "messages"},
    {R"("messages":["hello"])", 400, "messages"},
    {R"("messages":[null])", 400, "messages"},
    {R"("messages":[{}])", 400, "role"},
    {R"("messages":[{"role":"user"}])", 400, "content"},
    {R"("messages":[{"content":"x"}])", 400, "role"},
    {R"("messages":[{"role":5,"content":"x"}])", 400, "role"},
    {R"("messages":[{"role":"","content":"x"}])", 400, "role"},
    {R"("messages":[{"role":"user","content":5}])", 400, "content"},
    {R"("messages":[{"role":"user","content":null}])", 400, "content"},
    {R"("messages":[{"role":"user","content":{}}])", 400, "content"},
    {R"("messages":[{"role":"user","content":[5]}])", 400, "content"},
    {R"("messages":[{"role":"user","content":[{}]}])", 400, "type"},
    {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", 400, "text"},
    {R"("messages":[{"role":"user","content":[{"type":"text","text":5}]}])", 400, "text"},
    {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}])", 400,
     "image_url"},
    {R"("messages":[{"role":"user","content":[{"type":"input_audio"}]}])", 400, "input_audio"},
    {R"("messages":[{"role":"nobody","content":"x"}])", 400, "nobody"},
    {R"("messages":[{"role":"assistant","tool_calls":5}])", 400, "tool_calls"},
    {R"("messages":[{"role":"assistant","tool_calls":[5]}])", 400, "function"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"function":{}}]}])", 400, "name"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])", 400, "arguments"},
    {R"("messages":[{"role":"user","content":""}])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":null}])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"},{"role":"assistant"}])", 200, ""},
    {R"("messages":[{"role":"user","content":"\u0000<|im_end|>"}])", 200, ""},
    {R"("messages":[{"role":"user","content":[]}])", 200, ""},
    {R"("messages":[{"role":"user","content":"x","name":5,"extra":{}}])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"max_tokens":0)", 400, "max_tokens"},
    {R"("messages":[{"role":"user","content":"x"}],"max_completion_tokens":0)", 400, "max_completion_tokens"},
    {R"("messages":[{"role":"user","content":"x"}],"max_completion_tokens":1000)", 400, "1000"},
    {R"("messages":[{"role":"user","content":"x"}],"logprobs":1)", 400, "logprobs"},
    {R"("messages":[{"role":"user","content":"x"}],"top_logprobs":5)", 400, "top_logprobs"},
    {R"("messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":21)", 400, "top_logprobs"},
    {R"("messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":-1)", 400, "top_logprobs"},
    {R"("messages":[{"role":"user","content":"x"}],"logprobs":true)", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tools":5)", 400, "tools"},
    {R"("messages":[{"role":"user","content":"x"}],"tools":[5])", 400, "tools"},
    {R"("messages":[{"role":"user","content":"x"}],"tools":[{"type":"code"}])", 400, "tools"},
    {R"("messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{}}])", 400, "tools"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"auto")", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"auto","tools":[])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"auto","tools":null)", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"auto",)"
     R"("tools":[{"type":"function","function":{"name":"f"}}])",
     400, "tool_choice"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"AUTO")", 400, "tool_choice"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":["auto"])", 400, "tool_choice"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"required")", 400, "tool_choice"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"function","function":{"name":"f"}})", 400,
     "tool_choice"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"none")", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}])", 400,
     "is 'auto' (the default with tools)"},
    {R"("messages":[{"role":"user","content":"x"}],"tool_choice":"none",)"
     R"("tools":[{"type":"function","function":{"name":"f"}}])",
     200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"tools":[])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"chat_template":"{{ 1 }}")", 400, "chat_template"},
    {R"("messages":[{"role":"user","content":"x"}],"chat_template_kwargs":5)", 400, "chat_template_kwargs"},
    {R"("messages":[{"role":"user","content":"x"}],"continue_final_message":true)", 400, "continue_final_message"},
    {R"("messages":[{"role":"user","content":"x"}],"add_generation_prompt":"no")", 400, "add_generation_prompt"},
    {R"("messages":[{"role":"user","content":"x"}],"modalities":["audio"])", 400, "modalities"},
    {R"("messages":[{"role":"user","content":"x"}],"modalities":["text"])", 200, ""},
    {R"("messages":[{"role":"user","content":"x"}],"functions":[{"name":"f"}])", 400, "functions"},
    {R"("messages":[{"role":"user","content":"x"}],"web_search_options":{})", 400, "web_search_options"},
    {R"("messages":[{"role":"user","content":"x"}],"documents":[{"text":"x"}])", 400, "documents"},
    {R"("messages":[{"role":"user","content":"x"}],"reasoning_effort":"high")", 400, "reasoning_effort"},
    {R"("messages":[{"role":"user","content":"x"}],"echo":true)", 400, "echo"},
};

// Whole bodies.
const Case kBodies[] = {
    {"", 400, "no JSON"},          {" ", 400, "no JSON"},
    {"{", 400, "no JSON"},         {"}", 400, "no JSON"},
    {"{}", 400, "is required"},    {"[]", 400, "object"},
    {"null", 400, "object"},       {"5", 400, "object"},
    {"\"prompt\"", 400, "object"}, {"{\"prompt\"", 400, "no JSON"},
    {"prompt=x", 400, "no JSON"},  {"\xef\xbb\xbf{}", 400, "is required"},
    {"{} {}", 400, "no JSON"},
};

class Hostile : public ::testing::Test {
 protected:
  void expect(const char* path, const std::string& body, const Case& c) {
    const Reply reply = server_.post_text(path, body);
    EXPECT_EQ(reply.status, c.status) << path << " " << body.substr(0, 300) << "\n" << reply.body.substr(0, 300);
    if (c.status != 200) {
      const Json error = reply.json()["error"];
      ASSERT_TRUE(error.is_object()) << reply.body.substr(0, 300);
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.names)) << body.substr(0, 300);
      EXPECT_EQ(error["code"], c.status);
      EXPECT_TRUE(error.contains("param") && error["type"].is_string());
      EXPECT_LT(reply.body.size(), 1000u);
    }
    const Reply plain = server_.post_text("/v1/completions", R"({"prompt":[68],"max_tokens":2})");
    EXPECT_EQ(plain.status, 200) << "after " << body.substr(0, 300);
    EXPECT_EQ(plain.json()["choices"][0]["text"], "aa") << "after " << body.substr(0, 300);
    ++count_;
  }
  ~Hostile() override {
    EXPECT_TRUE(server_.eventually([&] { return server_.engine.alive() == 0; }));
    RecordProperty("requests", count_);
  }

  TestServer server_;
  int count_ = 0;
};

TEST_F(Hostile, FieldsOfCompletions) {
  for (const Case& c : kShared) expect("/v1/completions", R"({"prompt":"a","max_tokens":2,)" + c.members + "}", c);
  for (const Case& c : kCompletions) {
    const bool counts = c.members.find("max_tokens") != std::string::npos;
    expect("/v1/completions", "{" + c.members + (counts ? "}" : R"(,"max_tokens":2})"), c);
  }
}

TEST_F(Hostile, FieldsOfChat) {
  const std::string head = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,)";
  for (const Case& c : kShared) expect("/v1/chat/completions", head + c.members + "}", c);
  for (const Case& c : kChat) {
    const bool counts = c.members.find("max_") != std::string::npos;
    expect("/v1/chat/completions", "{" + c.members + (counts ? "}" : R"(,"max_tokens":2})"), c);
  }
}

TEST_F(Hostile, BodiesOfEveryEndpoint) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    for (Case c : kBodies) {
      if (std::string_view(path) == "/tokenize" && c.names == "is required") c.names = "prompt";
      expect(path, c.members, c);
    }
  }
}

TEST_F(Hostile, TokenizeAndDetokenize) {
  for (const Case& c : {Case{R"({"prompt":5})", 400, "prompt"},
                        {R"({"prompt":["a"]})", 400, "prompt"},
                        {R"({"messages":[]})", 400, "messages"},
                        {R"({"prompt":"a","messages":[{"role":"user","content":"x"}]})", 400, "prompt"},
                        {R"({"prompt":"a","model":"b"})", 404, "b"},
                        {R"({"prompt":"a","add_special_tokens":"x"})", 400, "add_special_tokens"},
                        {R"({"prompt":""})", 200, ""}}) {
    expect("/tokenize", c.members, c);
  }
  for (const Case& c : {Case{R"({"tokens":5})", 400, "tokens"},
                        {R"({"tokens":["a"]})", 400, "tokens"},
                        {R"({"tokens":[-1]})", 400, "tokens"},
                        {R"({"tokens":[502]})", 400, "tokens"},
                        {R"({"tokens":[1.5]})", 400, "tokens"},
                        {R"({"tokens":[]})", 200, ""},
                        {R"({"tokens":[501,0]})", 200, ""}}) {
    expect("/detokenize", c.members, c);
  }
}

TEST_F(Hostile, LargeThings) {
  const auto times = [](int n, const std::string& what) {
    std::string out;
    for (int i = 0; i < n; ++i) out += what;
    return out;
  };
  const auto with = [](const std::string& member) { return R"({"prompt":"a","max_tokens":2,)" + member + "}"; };
  expect("/v1/completions", with("\"x\":" + times(20000, "[")), {"", 400, "deeper"});
  expect("/v1/completions", with("\"x\":" + times(20000, "[") + times(20000, "]")), {"", 400, "deeper"});
  expect("/v1/completions", with("\"x\":" + times(20000, "{\"a\":")), {"", 400, "deeper"});
  expect("/v1/chat/completions", "{\"messages\":" + times(20000, "["), {"", 400, "deeper"});
  expect("/v1/completions", with("\"x\":[" + times(2'100'000, "0,") + "0]"), {"", 400, "values"});
  expect("/v1/completions", with("\"stop\":[" + times(64, "\"a\",") + "\"a\"]"), {"", 400, "stop"});
  expect("/v1/completions", with("\"stop\":\"" + times(1025, "a") + "\""), {"", 400, "stop"});
  expect("/v1/completions", with("\"bad_words\":[\"" + times(2000, "a") + "\"]"), {"", 400, "bad_words"});
  expect("/v1/completions", with("\"cache_salt\":\"" + times(1025, "a") + "\""), {"", 400, "cache_salt"});
  expect("/v1/completions", with("\"request_id\":\"" + times(257, "a") + "\""), {"", 400, "request_id"});
  expect("/v1/completions", with("\"allowed_token_ids\":[" + times(65536, "1,") + "1]"),
         {"", 400, "allowed_token_ids"});
  expect("/v1/completions", with("\"model\":\"" + times(100000, "m") + "\""), {"", 404, "does not exist"});
  expect("/v1/completions", with("\"" + times(100000, "k") + "\":1"), {"", 200, ""});
  expect("/v1/completions", R"({"prompt":")" + times(600, "😀") + R"("})", {"", 400, "holds 512 tokens"});
  expect("/v1/completions", R"({"prompt":")" + times(1 << 20, "a b ") + R"("})", {"", 400, "prompt"});
  expect("/v1/completions", R"({"prompt":")" + times(5 << 20, "a") + R"("})", {"", 400, "bytes"});
  expect("/v1/completions", "{\"prompt\":[" + times(512, "68,") + "68]}", {"", 400, "513"});
  expect("/v1/completions", "{\"prompt\":[" + times(256, "\"a\",") + "\"a\"]}", {"", 400, "prompt"});
  expect("/v1/completions", "{\"n\":128,\"max_tokens\":1,\"prompt\":[" + times(8, "\"a\",") + "\"a\"]}",
         {"", 400, "n"});
  expect("/v1/chat/completions",
         R"({"messages":[)" + times(5000, R"({"role":"user","content":"x"},)") + R"({"role":"user","content":"x"}]})",
         {"", 400, "holds 512"});
  const Reply long_body = server_.post_text("/v1/completions", std::string((16 << 20) + 1, ' '));
  EXPECT_EQ(long_body.status, 413);
}

}  // namespace
}  // namespace spyre::server
