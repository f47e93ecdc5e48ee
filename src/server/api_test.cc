// The endpoints over a real socket, with an engine that answers from a script.
#include "server/api.h"

#include <gmock/gmock.h>

#include "server/testing/test_server.h"

namespace spyre::server {
namespace {

using testing::events_of;
using ::testing::HasSubstr;
using testing::HttpClient;
using testing::Reply;
using ::testing::StartsWith;
using testing::TestServer;
using testing::TestServerOptions;
using testing::tiny_tokenizer;

std::vector<int32_t> encode(std::string_view text) {
  return tiny_tokenizer().encode(text, {.add_special = false});
}

// Texts of a stream's choice, joined.
std::string joined(const std::vector<std::string>& events, int64_t index, bool chat) {
  std::string out;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      out += chat ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
    }
  }
  return out;
}

TEST(Completions, AnswersInOpenAisShape) {
  TestServer server;
  server.engine.script(encode("Paris is 😀 here"));
  const Reply reply =
      server.post("/v1/completions", {{"model", "alias"}, {"prompt", "The capital"}, {"max_tokens", 5}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "tiny");
  ASSERT_EQ(json["choices"].size(), 1u);
  EXPECT_EQ(json["choices"][0]["index"], 0);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["prompt_tokens"], tiny_tokenizer().encode("The capital").size());
  EXPECT_EQ(server.engine.seen()[0].prompt_ids.front(), 1);  // BOS
}

TEST(Completions, DefaultsAreVllms) {
  TestServer server;
  ASSERT_EQ(server.post("/v1/completions", {{"prompt", "a"}}).status, 200);
  const engine::Request request = server.engine.seen()[0];
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1.0);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.sampling.eos_token_ids, std::vector<int32_t>{3});
  EXPECT_FALSE(request.sampling.logprobs || request.sampling.prompt_logprobs || request.sampling.seed);
}

// What the model's makers want holds where a request says nothing, and only there.
TEST(Completions, TheModelsDefaultsHoldWhereARequestSaysNothing) {
  TestServer server({.defaults = {.temperature = 0.6,
                                  .top_p = 0.95,
                                  .top_k = 20,
                                  .min_p = 0.125,
                                  .repetition_penalty = 1.05,
                                  .max_new_tokens = 40}});
  const Json given = {{"temperature", 0}, {"top_p", 1}, {"top_k", 0}, {"min_p", 0}, {"repetition_penalty", 1}};
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool chat = std::string_view(path) == "/v1/chat/completions";
    Json body = chat ? Json{{"messages", {{{"role", "user"}, {"content", "a"}}}}} : Json{{"prompt", "a"}};
    body["temperature"] = nullptr;
    ASSERT_EQ(server.post(path, body).status, 200);
    const runner::SamplingParams p = server.engine.seen().back().sampling;
    EXPECT_EQ(p.temperature, 0.6);
    EXPECT_EQ(p.top_p, 0.95);
    EXPECT_EQ(p.top_k, 20);
    EXPECT_EQ(p.min_p, 0.125);
    EXPECT_EQ(p.repetition_penalty, 1.05);
    EXPECT_EQ(p.max_tokens, chat ? 40 : 16);  // of completions, the API has a default of its own

    body.update(given);
    body["max_tokens"] = 50;
    ASSERT_EQ(server.post(path, body).status, 200);
    const runner::SamplingParams q = server.engine.seen().back().sampling;
    EXPECT_EQ(q.temperature, 0);
    EXPECT_EQ(q.top_p, 1);
    EXPECT_EQ(q.top_k, 0);
    EXPECT_EQ(q.min_p, 0);
    EXPECT_EQ(q.repetition_penalty, 1);
    EXPECT_EQ(q.max_tokens, 50);
  }
}

// Each field must arrive where the engine reads it.
TEST(Completions, EveryFieldReachesTheEngine) {
  TestServer server;
  const Json body = {{"prompt", {5, 6, 7}},
                     {"max_tokens", 9},
                     {"temperature", 0.5},
                     {"top_p", 0.25},
                     {"top_k", 1000},
                     {"min_p", 0.125},
                     {"seed", -1},
                     {"presence_penalty", 1},
                     {"frequency_penalty", -1},
                     {"repetition_penalty", 1.5},
                     {"logit_bias", {{"7", 200}, {"3", -2.5}}},
                     {"min_tokens", 2},
                     {"stop", {"x", "yz"}},
                     {"stop_token_ids", {9, 8, 9}},
                     {"ignore_eos", true},
                     {"n", 2},
                     {"logprobs", 0},
                     {"prompt_logprobs", 3},
                     {"include_stop_str_in_output", true},
                     {"skip_special_tokens", false},
                     {"cache_salt", "s"},
                     {"allowed_token_ids", {11, 10}},
                     {"bad_words", {"the"}}};
  ASSERT_EQ(server.post("/v1/completions", body).status, 200);
  const engine::Request r = server.engine.seen()[0];
  const runner::SamplingParams& p = r.sampling;
  EXPECT_EQ(r.prompt_ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(p.max_tokens, 9);
  EXPECT_EQ(p.temperature, 0.5);
  EXPECT_EQ(p.top_p, 0.25);
  EXPECT_EQ(p.top_k, 502);  // more than the vocabulary is all of it
  EXPECT_EQ(p.min_p, 0.125);
  EXPECT_EQ(p.seed, ~uint64_t{0});
  EXPECT_EQ(p.presence_penalty, 1);
  EXPECT_EQ(p.frequency_penalty, -1);
  EXPECT_EQ(p.repetition_penalty, 1.5);
  EXPECT_EQ(p.logit_bias, (std::vector<std::pair<int32_t, float>>{{3, -2.5f}, {7, 100.0f}}));
  EXPECT_EQ(p.min_tokens, 2);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(p.stop_token_ids, (std::vector<int32_t>{8, 9}));
  EXPECT_TRUE(p.ignore_eos && r.include_stop_in_output && !r.skip_special_tokens);
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(p.logprobs, 0);
  EXPECT_EQ(p.prompt_logprobs, 3);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_EQ(p.allowed_token_ids, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(p.bad_words.front(), encode("the"));
}

TEST(Completions, SeveralPromptsGiveChoicesInOrder) {
  TestServer server;
  const Json json = server
                        .post("/v1/completions",
                              {{"prompt", {{68}, {69, 69}, {70}}}, {"n", 2}, {"max_tokens", 2}, {"ignore_eos", true}})
                        .json();
  ASSERT_EQ(json["choices"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], (std::vector<const char*>{"aa", "bb", "cc"})[i / 2]);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
}

TEST(Completions, EchoAndLogprobsCoverThePrompt) {
  TestServer server;
  server.engine.script({71});
  const Json json =
      server.post("/v1/completions", {{"prompt", {68, 69, 70}}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}})
          .json();
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "abcd");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"a", "b", "c", "d"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({nullptr, -9.0 / 8, 0.0, -1.0 / 8}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2, 3}));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 2u);
  EXPECT_TRUE(choice["prompt_logprobs"].is_null());  // not asked by that name
}

TEST(Completions, ScoresAPromptWithoutGenerating) {
  TestServer server;
  const Json json =
      server
          .post("/v1/completions",
                {{"prompt", {{68, 69}, {70, 71}}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}, {"n", 2}})
          .json();
  ASSERT_EQ(json["choices"].size(), 4u);
  for (const Json& choice : json["choices"]) {
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), 2u);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 1u);
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  EXPECT_EQ(json["choices"][3]["text"], "cd");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
}

TEST(Completions, AStreamIsTheAnswerInPieces) {
  TestServer server;
  const std::string text = "a😀b👍c is Paris";
  const Json body = {{"prompt", "x"}, {"max_tokens", encode(text).size()}, {"logprobs", 1}, {"echo", true}};
  server.engine.script(encode(text));
  const Json whole = server.post("/v1/completions", body).json();
  server.engine.script(encode(text));
  Json streamed = body;
  streamed["stream"] = true;
  const Reply reply = server.post("/v1/completions", streamed);
  ASSERT_EQ(reply.status, 200);
  EXPECT_THAT(reply.headers.at("content-type"), StartsWith("text/event-stream"));
  const auto events = events_of(reply.body);
  EXPECT_EQ(joined(events, 0, false), whole["choices"][0]["text"].get<std::string>());
  EXPECT_EQ(whole["choices"][0]["text"].get<std::string>(), "x" + text);
  EXPECT_EQ(events.back(), "[DONE]");
  Json tokens = Json::array(), offsets = Json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i]);
    EXPECT_EQ(chunk["object"], "text_completion");
    EXPECT_FALSE(chunk.contains("usage"));
    for (const Json& token : chunk["choices"][0]["logprobs"]["tokens"]) tokens.push_back(token);
    for (const Json& offset : chunk["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(tokens, whole["choices"][0]["logprobs"]["tokens"]);
  EXPECT_EQ(offsets, whole["choices"][0]["logprobs"]["text_offset"]);
}

TEST(Completions, UsageComesLastAndOnlyWhenAsked) {
  TestServer server;
  const Reply reply = server.post(
      "/v1/completions",
      {{"prompt", {68}}, {"max_tokens", 3}, {"stream", true}, {"n", 2}, {"stream_options", {{"include_usage", true}}}});
  const auto events = events_of(reply.body);
  const Json last = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"]["completion_tokens"], 6);
  EXPECT_TRUE(Json::parse(events[0])["usage"].is_null());
}

TEST(Completions, TokenIdsComeWhenAsked) {
  TestServer server;
  const Json json = server
                        .post("/v1/completions", {{"prompt", {68, 69}},
                                                  {"max_tokens", 3},
                                                  {"return_token_ids", true},
                                                  {"logprobs", 0},
                                                  {"return_tokens_as_token_ids", true}})
                        .json();
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({68, 69, 68}));
  EXPECT_EQ(json["choices"][0]["prompt_token_ids"], Json({68, 69}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"][0], "token_id:68");
}

TEST(Completions, StopReasonsAreTold) {
  TestServer server;
  server.engine.script({68, 69, 3});
  Json json = server.post("/v1/completions", {{"prompt", {70}}}).json();
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(json["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  server.engine.script({68, 69, 70});
  json = server.post("/v1/completions", {{"prompt", {70}}, {"stop_token_ids", {69}}}).json();
  EXPECT_EQ(json["choices"][0]["stop_reason"], 69);
}

TEST(Completions, TheContextMayBeFilledButNotExceeded) {
  TestServer server;
  const std::vector<int32_t> prompt(500, 68);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 12}}).json()["usage"]["total_tokens"],
            512);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", prompt}}).json()["usage"]["completion_tokens"],
            12);  // 16 do not fit
  const Reply over = server.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 13}});
  EXPECT_EQ(over.status, 400);
  EXPECT_THAT(over.body, HasSubstr("holds 512 tokens; the prompt has 500 and 13 more"));
  EXPECT_EQ(over.json()["error"]["param"], "max_tokens");
  const std::vector<int32_t> full(512, 68);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", full}}).status, 400);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", full}, {"max_tokens", 0}}).status, 200);
  const Json cut =
      server.post("/v1/completions", {{"prompt", full}, {"truncate_prompt_tokens", 7}, {"max_tokens", 1}}).json();
  EXPECT_EQ(cut["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", full}, {"truncate_prompt_tokens", -1}, {"max_tokens", 5}})
                .json()["usage"]["prompt_tokens"],
            507);
}

TEST(Completions, AFailureOfTheEngineIsA500AndTheServerLives) {
  TestServer server;
  server.engine.fail_after(0, "step 7 failed");
  Reply reply = server.post("/v1/completions", {{"prompt", {68}}});
  EXPECT_EQ(reply.status, 500);
  EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr("step 7"));
  server.engine.fail_after(0, "at once");
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", {68}}, {"stream", true}}).status, 500);
  server.engine.fail_after(2, "later");
  reply = server.post("/v1/completions", {{"prompt", {68}}, {"stream", true}});
  EXPECT_EQ(reply.status, 200);
  const auto events = events_of(reply.body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Json::parse(events[events.size() - 2])["error"]["code"], 500);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", {68}}}).status, 200);
}

TEST(Completions, AFullQueueIsA429AndLeavesNothingRunning) {
  TestServer server({.step = std::chrono::milliseconds(5), .max_queue = 2});
  const Reply reply =
      server.post("/v1/completions", {{"prompt", {{68}, {68}, {68}}}, {"max_tokens", 400}, {"ignore_eos", true}});
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.headers.count("retry-after"), 1u);
  EXPECT_TRUE(server.eventually([&] { return server.engine.alive() == 0; }));
  EXPECT_EQ(server.engine.stats().finished[static_cast<size_t>(engine::FinishReason::kAbort)], 2);
}

TEST(Completions, WithoutATokenizerIdsWork) {
  TestServer server({.tokenizer = false});
  const Json json = server
                        .post("/v1/completions",
                              {{"prompt", {68, 69}}, {"max_tokens", 2}, {"return_token_ids", true}, {"logprobs", 1}})
                        .json();
  EXPECT_EQ(json["choices"][0]["text"], "");
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({68, 69}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"], Json({"token_id:68", "token_id:69"}));
  for (const Json& extra :
       {Json{{"prompt", "x"}}, Json{{"prompt", {1}}, {"stop", "x"}}, Json{{"prompt", {1}}, {"bad_words", {"x"}}}}) {
    EXPECT_EQ(server.post("/v1/completions", extra).status, 400) << extra;
  }
}

TEST(Chat, AnswersInOpenAisShape) {
  TestServer server;
  server.engine.script(encode("Paris"));
  const Json body = {{"messages",
                      {{{"role", "system"}, {"content", "Short."}},
                       {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Capital?"}}}}}}},
                     {"max_completion_tokens", encode("Paris").size()},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const Reply reply = server.post("/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Paris");
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"].size(), encode("Paris").size());
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  const auto prompt = tiny_tokenizer().encode(
      "<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nCapital?<|im_end|>\n<|im_start|>assistant\n",
      {.add_special = false, .parse_special = true});
  EXPECT_EQ(server.engine.seen()[0].prompt_ids, prompt);
  EXPECT_EQ(server.engine.seen()[0].sampling.max_tokens, encode("Paris").size());
}

TEST(Chat, MaxTokensDefaultsToTheRestOfTheContext) {
  TestServer server;
  server.engine.script({3});
  const Json json = server.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}}}).json();
  EXPECT_EQ(server.engine.seen()[0].sampling.max_tokens, 512 - json["usage"]["prompt_tokens"].get<int64_t>());
}

TEST(Chat, AStreamSaysWhoSpeaksFirst) {
  TestServer server;
  server.engine.script(encode("a😀b"));
  const Reply reply = server.post("/v1/chat/completions",
                                  {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                   {"max_tokens", encode("a😀b").size()},
                                   {"n", 2},
                                   {"stream", true},
                                   {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  const auto events = events_of(reply.body);
  const Json first = Json::parse(events[0]);
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_GT(first["usage"]["prompt_tokens"], 0);
  EXPECT_EQ(joined(events, 0, true), "a😀b");
  EXPECT_EQ(joined(events, 1, true), "a😀b");
  int finished = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i]);
    for (const Json& choice : chunk["choices"]) finished += choice["finish_reason"] == "length";
  }
  EXPECT_EQ(finished, 2);
}

TEST(Chat, ToolCallsOfEarlierTurnsReachTheTemplateAsObjects) {
  TestServer server;
  Json seen;
  server.model.chat = [&](const ChatArguments& arguments) {
    seen = {{"messages", arguments.messages}, {"tools", arguments.tools}, {"kwargs", arguments.kwargs}};
    return ChatPromptIds{.ids = {1}, .text = ""};
  };
  const Json body = {
      {"messages",
       {{{"role", "user"}, {"content", "x"}},
        {{"role", "assistant"},
         {"tool_calls",
          {{{"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"z\": 1, \"a\": 2}"}}}}}}},
        {{"role", "tool"}, {"tool_call_id", "c"}, {"content", "3"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"z", 1}, {"a", 2}}}}}}}},
      {"tool_choice", "none"},
      {"chat_template_kwargs", {{"think", false}}},
      {"max_tokens", 1}};
  ASSERT_EQ(server.post("/v1/chat/completions", body).status, 200);
  EXPECT_EQ(dump(seen["messages"][1]["tool_calls"][0]["function"]["arguments"]), "{\"z\":1,\"a\":2}");
  EXPECT_EQ(seen["messages"][1]["content"], "");        // not null: many templates add strings to it
  EXPECT_EQ(dump(seen["tools"]), dump(body["tools"]));  // in the client's order
  EXPECT_EQ(seen["kwargs"]["think"], false);
}

TEST(Chat, WhatTheTemplateSaysIsA400) {
  TestServer server;
  const Reply reply = server.post("/v1/chat/completions", {{"messages", {{{"role", "nobody"}, {"content", "x"}}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("knows no role nobody"));
  TestServer without({.chat = false});
  EXPECT_EQ(without.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}}}).status, 400);
}

TEST(Tokens, GoThereAndBack) {
  TestServer server;
  Json json = server.post("/tokenize", {{"prompt", "Hello, world!"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(json["count"], json["tokens"].size());
  EXPECT_EQ(json["tokens"][0], 1);
  EXPECT_EQ(json["max_model_len"], 512);
  EXPECT_EQ(json["token_strs"].size(), json["tokens"].size());
  json = server.post("/tokenize", {{"prompt", "Hello, world!"}, {"add_special_tokens", false}}).json();
  EXPECT_EQ(json["tokens"], Json(encode("Hello, world!")));
  EXPECT_EQ(server.post("/detokenize", {{"tokens", json["tokens"]}}).json()["prompt"], "Hello, world!");
  json = server.post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "x"}}}}}).json();
  EXPECT_EQ(json["tokens"][0], 2);
  EXPECT_EQ(server.post("/tokenize", {{"prompt", "x"}, {"messages", Json::array()}}).status, 400);
  EXPECT_EQ(server.post("/tokenize", Json::object()).status, 400);
  EXPECT_EQ(server.post("/detokenize", Json::object()).status, 400);
}

TEST(Routes, ModelsVersionAndDocs) {
  TestServer server;
  const Json models = server.get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(server.get("/v1/models/alias").json()["id"], "alias");
  EXPECT_EQ(server.get("/v1/models/other").status, 404);
  EXPECT_EQ(server.get("/version").json()["platform"], "fake");
  EXPECT_EQ(server.get("/openapi.json?x=1").json()["openapi"], "3.0.3");
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ping").status, 200);
}

TEST(Routes, UnknownPathsAre404AndWrongMethods405) {
  TestServer server;
  for (const char* path : {"/", "/v1/embeddings", "/v1/completions/", "/v1/models/", "/../health", "/v1"}) {
    const Reply reply = server.get(path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.json()["error"]["code"], 404) << path;
  }
  EXPECT_EQ(server.get("/v1/completions").status, 405);
  EXPECT_EQ(server.get("/v1/completions").headers.at("allow"), "POST");
  EXPECT_EQ(server.post("/health", Json::object()).status, 405);
  EXPECT_EQ(server.client().request("DELETE", "/v1/models").status, 405);
}

TEST(Routes, AKeyGuardsAllButHealth) {
  TestServer server({.keys = {"k1", "k2"}});
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ping").status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/version", "/openapi.json", "/nothing"}) {
    const Reply reply = server.get(path);
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_EQ(reply.json()["error"]["code"], 401);
  }
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}}).status, 401);
  EXPECT_EQ(server.post("/tokenize", {{"prompt", "x"}}).status, 401);
  EXPECT_EQ(server.client().request("GET", "/v1/models", "", "Authorization: Bearer k2\r\n").status, 200);
  EXPECT_EQ(server.client().request("GET", "/v1/models", "", "Authorization: Bearer k3\r\n").status, 401);
}

TEST(Ready, NothingIsServedBeforeAndAfter) {
  TestServer server({.ready = false});
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}}).status, 503);
  EXPECT_EQ(server.get("/metrics").status, 200);
  server.api.serve(server.model);
  EXPECT_EQ(server.get("/health").status, 200);
  for (const auto health :
       {engine::EngineHealth::kHung, engine::EngineHealth::kDead, engine::EngineHealth::kDraining}) {
    server.engine.set_health(health);
    EXPECT_EQ(server.get("/health").status, 503);
  }
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}}).status, 503);  // the engine refuses
  server.engine.set_health(engine::EngineHealth::kReady);
  server.api.drain();
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "x"}}).status, 503);
}

TEST(Metrics, CountAKnownMix) {
  TestServer server;
  for (int i = 0; i < 3; ++i)
    server.post("/v1/completions", {{"prompt", {68, 69}}, {"max_tokens", 4}, {"ignore_eos", true}});
  const std::string page = server.get("/metrics").body;
  EXPECT_THAT(page, HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 12\n"));
  EXPECT_THAT(page, HasSubstr("vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 6\n"));
  EXPECT_THAT(page, HasSubstr("finished_reason=\"length\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("spyre_http_requests_total 4\n"));
}

}  // namespace
}  // namespace spyre::server
