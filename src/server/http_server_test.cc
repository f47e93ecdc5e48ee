// The transport: what it refuses, whom it notices leaving, and that nobody waits for a stranger.
#include "server/http_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "server/file_limit.h"
#include "server/http_text.h"
#include "server/testing/test_server.h"

namespace spyre::server {
namespace {

using std::chrono::milliseconds;
using testing::events_of;
using testing::HttpClient;
using testing::Reply;
using testing::TestServer;

const char* const kEndless = R"({"prompt":[68],"max_tokens":500,"ignore_eos":true)";

std::string request_text(std::string_view method, std::string_view path, std::string_view body = "",
                         std::string_view more = "") {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", method, path, body.size(), more,
                     body);
}

TEST(HttpText, FindsThePath) {
  EXPECT_EQ(target_path("/v1/models?x=/y"), "/v1/models");
  EXPECT_EQ(target_path("http://host:80/v1/models?x"), "/v1/models");
  EXPECT_EQ(target_path("http://host"), "/");
  EXPECT_EQ(target_path("*"), "*");
  EXPECT_EQ(target_path("/a#b"), "/a");
}

TEST(HttpServer, KeepsAConnectionForManyRequests) {
  TestServer server;
  HttpClient client = server.client();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt":[68],"max_tokens":2})").status, 200);
  EXPECT_EQ(server.http().counters().connections, 1);
}

TEST(HttpServer, AnAnswerThatThrowsEndsAlone) {
  std::atomic<bool> cancelled = false;
  HttpServer server(HttpOptions{}, [&cancelled](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path == "/good") return exchange->respond({.body = "{}"});
    exchange->on_gone([&cancelled] { cancelled = true; });
    exchange->post([] { throw std::runtime_error("no memory for the answer"); });
  });
  HttpClient bad(server.port());
  bad.send(request_text("GET", "/bad"));
  EXPECT_TRUE(bad.closed());
  EXPECT_TRUE(cancelled);
  HttpClient good(server.port());
  EXPECT_EQ(good.request("GET", "/good").status, 200);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  HttpClient client = server.client();
  std::string all;
  for (int i = 1; i <= 10; ++i)
    all += request_text("POST", "/v1/completions",
                        fmt::format(R"({{"prompt":[68],"max_tokens":{},"stream":{}}})", i, i % 2 ? "true" : "false"));
  all += request_text("GET", "/v1/models");
  client.send(all);
  for (int i = 1; i <= 10; ++i) {
    const Reply reply = client.reply();
    ASSERT_EQ(reply.status, 200);
    if (i % 2 == 0) {
      EXPECT_EQ(reply.json()["usage"]["completion_tokens"], i);
    } else {
      EXPECT_EQ(events_of(reply.body).size(), static_cast<size_t>(i) + 1);
    }
  }
  EXPECT_EQ(client.reply().json()["object"], "list");
}

TEST(HttpServer, ClosesWhenAskedAndForOldClients) {
  TestServer server;
  HttpClient client = server.client();
  Reply reply = client.request("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers["connection"], "close");
  EXPECT_TRUE(client.closed());
  HttpClient old = server.client();
  const std::string body = R"({"prompt":[68],"max_tokens":2,"stream":true})";
  old.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  reply = old.reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(events_of(reply.body).back(), "[DONE]");
}

TEST(HttpServer, TakesChunkedBodiesAndAsksForExpectedOnes) {
  TestServer server;
  HttpClient client = server.client();
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n8\r\n{\"prompt\r\n7\r\n\":[68]}\r\n0\r\n\r\n");
  EXPECT_EQ(client.reply().status, 200);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n");
  EXPECT_EQ(client.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("{\"prompt\":[68]}");
  EXPECT_EQ(client.reply().status, 200);
}

TEST(HttpServer, RefusesWhatIsNoHttp) {
  TestServer server;
  for (const std::string bad :
       {"\r\n\r\nx\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "G\x01T / HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET / HTTP/1.1\r\nA\x01: b\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n"}) {
    HttpClient client = server.client();
    client.send(bad);
    const Reply reply = client.reply(5);
    EXPECT_GE(reply.status, 400) << bad;
    EXPECT_LT(reply.status, 500) << bad;
    EXPECT_TRUE(reply.json().contains("error")) << bad;
    EXPECT_TRUE(client.closed()) << bad;
  }
  for (const std::string encoding : {"gzip", "gzip, chunked", "identity"}) {
    HttpClient client = server.client();
    client.send("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: " + encoding + "\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.reply(5).status, 501) << encoding;
    EXPECT_TRUE(client.closed()) << encoding;
  }
  // One request inside another, as a front end that reads the other length would see it.
  HttpClient client = server.client();
  client.send(
      "POST /tokenize HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health "
      "HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.reply(5).status, 400);
  EXPECT_EQ(client.reply(1).status, 0);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  TestServer server;
  HttpClient client = server.client();
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  std::string all;
  for (std::string more = client.receive(5); !more.empty(); more = client.receive(5)) all += more;
  EXPECT_THAT(all, ::testing::StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(all, ::testing::HasSubstr("Content-Length: "));
  EXPECT_EQ(all.find("\r\n\r\n"), all.size() - 4) << all;
}

TEST(HttpServer, LimitsHeadersAndBodies) {
  TestServer server({.http = {.max_header_bytes = 4096, .max_body_bytes = 1000}});
  HttpClient long_header = server.client();
  long_header.send("GET /health HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n");
  EXPECT_EQ(long_header.reply().status, 431);
  HttpClient many = server.client();
  std::string headers;
  for (int i = 0; i < 1000; ++i) headers += fmt::format("X{}: 1\r\n", i);
  many.send("GET /health HTTP/1.1\r\n" + headers + "\r\n");
  EXPECT_EQ(many.reply().status, 431);
  HttpClient body = server.client();
  body.send(request_text("POST", "/tokenize", std::string(1001, ' ')));
  EXPECT_EQ(body.reply().status, 413);
  HttpClient chunked = server.client();
  chunked.send("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) chunked.send("64\r\n" + std::string(100, ' ') + "\r\n");
  EXPECT_EQ(chunked.reply().status, 413);
  EXPECT_EQ(server.post_text("/tokenize", "{\"prompt\":\"x\"}" + std::string(900, ' ')).status, 200);
}

TEST(HttpServer, LimitsBodiesOfAllTogether) {
  TestServer server({.http = {.max_body_bytes = 1000, .max_bodies_bytes = 1500}});
  HttpClient slow = server.client();
  slow.send("POST /tokenize HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{");
  EXPECT_TRUE(server.eventually(
      [&] { return server.post_text("/tokenize", "{\"prompt\":\"x\"}" + std::string(900, ' ')).status == 503; }));
  EXPECT_EQ(server.post_text("/tokenize", R"({"prompt":"x"})").status, 200);
}

TEST(HttpServer, HangsUpOnSlowSenders) {
  TestServer server(
      {.http = {
           .header_timeout = milliseconds(300), .body_timeout = milliseconds(300), .idle_timeout = milliseconds(300)}});
  HttpClient idle = server.client(), header = server.client(), body = server.client();
  header.send("GET /health HTTP/1.1\r\nX: ");
  body.send("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(header.closed());
  EXPECT_TRUE(body.closed());
  EXPECT_TRUE(server.eventually([&] { return server.http().counters().connections == 0; }));
}

TEST(HttpServer, LimitsConnections) {
  TestServer server({.http = {.max_connections = 3}});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<HttpClient>(server.port()));
  ASSERT_TRUE(server.eventually([&] { return server.http().counters().connections == 3; }));
  EXPECT_EQ(server.client().reply().status, 503);
  clients.clear();
  EXPECT_TRUE(server.eventually([&] { return server.get("/health").status == 200; }));
}

// Whoever leaves is cancelled, whether a stream or a whole answer was on its way.
TEST(HttpServer, AClientThatLeavesIsCancelled) {
  TestServer server({.step = milliseconds(10)});
  for (const char* rest : {R"(,"stream":true})", "}", R"(,"n":3})"}) {
    {
      HttpClient client = server.client();
      client.send(request_text("POST", "/v1/completions", std::string(kEndless) + rest));
      ASSERT_TRUE(server.eventually([&] { return server.engine.alive() == 1; })) << rest;
    }
    EXPECT_TRUE(server.eventually([&] { return server.engine.alive() == 0; }, 2)) << rest;
  }
  EXPECT_EQ(server.http().counters().vanished, 3);
  EXPECT_TRUE(server.http().wait_idle(milliseconds(2000)));
}

TEST(HttpServer, AHalfClosedClientCountsAsGone) {
  TestServer server({.step = milliseconds(10)});
  HttpClient client = server.client();
  client.send(request_text("POST", "/v1/completions", std::string(kEndless) + "}"));
  ASSERT_TRUE(server.eventually([&] { return server.engine.alive() == 1; }));
  client.shut_down_sending();
  EXPECT_TRUE(server.eventually([&] { return server.engine.alive() == 0; }, 2));
}

TEST(HttpServer, ASlowReaderSlowsNobodyAndIsHungUpOn) {
  TestServer server({.http = {.max_unsent_bytes = 64 << 10}});
  HttpClient slow = server.client();  // never reads: 64 choices with the most log-probs fill every buffer
  slow.send(request_text(
      "POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"n":64,"ignore_eos":true,"logprobs":true,"top_logprobs":20})"));
  EXPECT_EQ(server.post_text("/v1/completions", R"({"prompt":[68],"max_tokens":100,"ignore_eos":true})").status, 200);
  EXPECT_TRUE(server.eventually([&] { return server.http().counters().vanished == 1; }, 20));
  EXPECT_TRUE(server.eventually([&] { return server.engine.alive() == 0; }));
}

TEST(HttpServer, StoppingHangsUpOnEverybody) {
  auto server = std::make_unique<TestServer>(testing::TestServerOptions{.step = milliseconds(10)});
  HttpClient streaming = server->client(), idle = server->client();
  streaming.send(request_text("POST", "/v1/completions", std::string(kEndless) + R"(,"stream":true})"));
  ASSERT_TRUE(server->eventually([&] { return server->engine.alive() == 1; }));
  EXPECT_FALSE(server->http().wait_idle(milliseconds(20)));
  server->http().stop();
  EXPECT_TRUE(streaming.closed());
  EXPECT_TRUE(idle.closed());
  server.reset();
}

TEST(HttpServer, SaysWhereItCannotListen) {
  TestServer server;
  EXPECT_THROW(HttpServer({.port = server.port()}, [](auto) {}), Error);
  EXPECT_THROW(HttpServer({.host = "no such host"}, [](auto) {}), Error);
}

int64_t resident_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

TEST(HttpServer, AThousandIdleStreamsAreCheap) {
  if (raise_file_limit() < 2200) GTEST_SKIP() << "this process may open too few files";
  TestServer server({.step = std::chrono::hours(1), .max_queue = 2000});  // nothing comes, and they wait
  const int64_t before = resident_kb();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send(request_text("POST", "/v1/completions", std::string(kEndless) + R"(,"stream":true})"));
  }
  ASSERT_TRUE(server.eventually([&] { return server.http().counters().requests == 1000; }, 60));
  const int64_t extra = resident_kb() - before;
  RecordProperty("extra_kb", static_cast<int>(extra));
  EXPECT_LT(extra, 100 << 10);
}

}  // namespace
}  // namespace spyre::server
