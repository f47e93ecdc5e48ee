// A whole server on a fake engine and the tiny tokenizer of tests/data.
#pragma once

#include "server/api.h"
#include "server/testing/fake_engine.h"
#include "server/testing/http_client.h"

namespace spyre::server::testing {

const text::Tokenizer& tiny_tokenizer();

struct TestServerOptions {
  std::chrono::microseconds step{0};
  int64_t max_queue = 100;
  bool tokenizer = true, chat = true, ready = true;
  std::vector<std::string> keys;
  HttpLimits http;
  formats::GenerationDefaults defaults;
};

// The model "tiny" (also called "alias"): vocabulary 502, context 512, EOS 3 ("<|im_end|>"). Its chat template writes
// "<|im_start|>role\ncontent<|im_end|>\n", and refuses the role "nobody".
class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  uint16_t port() const { return server_->port(); }
  HttpClient client() const { return HttpClient(port()); }
  Reply post(std::string_view path, const Json& body) const { return post_text(path, dump(body)); }
  Reply post_text(std::string_view path, std::string_view body) const { return HttpClient(port()).post(path, body); }
  Reply get(std::string_view path) const { return HttpClient(port()).get(path); }
  bool eventually(const std::function<bool()>& condition, double seconds = 10) const;

  FakeEngine engine;
  ServedModel model;
  Api api;

  HttpServer& http() { return *server_; }

 private:
  std::unique_ptr<HttpServer> server_;
};

}  // namespace spyre::server::testing
