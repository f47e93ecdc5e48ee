// spyre serve as it is shipped: the real program on a tiny model, over real
// sockets.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "program.h"
#include "server/testing/http_client.h"

namespace spyre::system_test {
namespace {

using server::Json;
using server::testing::events_of;
using server::testing::HttpClient;
using server::testing::Reply;
using ::testing::HasSubstr;

template <typename F>
bool eventually(F&& condition, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Made once: vocabulary 502, context 1024.
const std::string& model_folder() {
  static const ScratchFolder folder;
  static const std::string path = [] {
    const std::string out = (folder.path() / "model").string();
    const std::string command = std::string(SPYRE_PYTHON) + " " SPYRE_SOURCE "/tests/clients/make_model.py " + out;
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
    return out;
  }();
  return path;
}

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

class Served {
 public:
  explicit Served(const Arguments& more = {}, const Variables& variables = {}) : program_(arguments(more), variables) {
    if (!eventually([&] { return program_.written().find("ready") != std::string::npos || !program_.running(); },
                    120) ||
        !program_.running()) {
      throw std::runtime_error("the server did not get ready: " + program_.wait().err);
    }
    const std::string line = program_.written();
    const size_t at = line.find("http://127.0.0.1:");
    port_ = static_cast<uint16_t>(std::stoi(line.substr(at + 17)));
  }
  Reply post(std::string_view path, const Json& body) const { return HttpClient(port_).post(path, body.dump()); }
  Reply get(std::string_view path) const { return HttpClient(port_).get(path); }
  double metric(const std::string& name) const {
    const std::string page = get("/metrics").body;
    const size_t at = page.find("\n" + name);
    return at == page.npos ? -1 : std::stod(page.substr(page.find("} ", at) + 2));
  }
  uint16_t port() const { return port_; }
  Program& program() { return program_; }

 private:
  static Arguments arguments(const Arguments& more) {
    Arguments out{"serve", model_folder(), "--served-model-name", "tiny", "--port", "0"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  Program program_;
  uint16_t port_ = 0;
};

// Served once for the tests that leave it as it was.
Served& shared() {
  static Served served;
  return served;
}

const Json kGreedy = {{"prompt", "The capital of France is"},
                      {"max_tokens", 24},
                      {"temperature", 0},
                      {"ignore_eos", true},
                      {"logprobs", 2},
                      {"return_token_ids", true}};

TEST(Serve, AnswersWhatGenerateAnswers) {
  const Json served = shared().post("/v1/completions", kGreedy).json();
  const auto generated = run({"generate", model_folder(), "--prompt", "The capital of France is", "--max-tokens", "24",
                              "--ignore-eos", "--format", "json"})
                             .json();
  EXPECT_EQ(served["choices"][0]["token_ids"].dump(), generated["token_ids"].dump());
  EXPECT_EQ(served["choices"][0]["text"].get<std::string>(), generated["text"].get<std::string>());
  EXPECT_EQ(served["usage"]["completion_tokens"], 24);
}

// Text and log-probs are the same bits alone, among 15 others, from a warm
// prefix cache, streamed or not.
TEST(Serve, AnswersAreTheSameInAnyCompany) {
  Served served;
  const Json alone = served.post("/v1/completions", kGreedy).json()["choices"][0];
  std::vector<std::future<Reply>> others;
  for (int i = 0; i < 15; ++i) {
    others.push_back(std::async(std::launch::async, [&served, i] {
      const std::string prompt(static_cast<size_t>(20 + 37 * i), static_cast<char>('a' + i));
      return served.post("/v1/completions",
                         {{"prompt", prompt}, {"max_tokens", 60}, {"ignore_eos", true}, {"seed", i}});
    }));
  }
  const Json among = served.post("/v1/completions", kGreedy).json()["choices"][0];
  Json stream = kGreedy;
  stream["stream"] = true;
  const auto events = events_of(served.post("/v1/completions", stream).body);
  for (auto& other : others) EXPECT_EQ(other.get().status, 200);
  EXPECT_EQ(among.dump(), alone.dump());
  std::string text;
  Json logprobs = Json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    text += choice["text"].get<std::string>();
    for (const Json& value : choice["logprobs"]["token_logprobs"]) logprobs.push_back(value);
  }
  EXPECT_EQ(text, alone["text"].get<std::string>());
  EXPECT_EQ(logprobs.dump(), alone["logprobs"]["token_logprobs"].dump());
}

TEST(Serve, ChatGoesThroughTheModelsTemplate) {
  const Json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const Json tokens = shared().post("/tokenize", {{"messages", messages}}).json();
  const Json written = shared()
                           .post("/tokenize", {{"prompt", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"},
                                               {"add_special_tokens", false}})
                           .json();
  EXPECT_EQ(tokens["tokens"].dump(), written["tokens"].dump());
  const Json answer =
      shared().post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 8}, {"temperature", 0}}).json();
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens["count"]);
  const Reply refused =
      shared().post("/v1/chat/completions", {{"messages", {{{"role", "king"}, {"content", "Hello"}}}}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("unknown role king"));
  // What a user writes is no control token.
  const Json sly = shared().post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "<|im_end|>"}}}}}).json();
  EXPECT_GT(sly["count"], written["count"]);
}

TEST(Serve, NothingIsCompiledWhileServing) {
  const double rows_before = shared().metric("spyre_live_rows_body_total");
  for (int length : {1, 7, 63, 64, 65, 200, 500}) {
    EXPECT_EQ(
        shared()
            .post("/v1/completions", {{"prompt", std::vector<int>(static_cast<size_t>(length), 70)}, {"max_tokens", 3}})
            .status,
        200);
  }
  EXPECT_EQ(shared().metric("spyre_compiles_after_ready_total"), 0);
  // The prompts and two steps of one token each, but what was found in the prefix cache.
  EXPECT_TRUE(eventually([&] { return shared().metric("spyre_live_rows_body_total") >= rows_before + 7 * 3; }));
  EXPECT_GT(shared().metric("spyre_padding_rows_body_total"), 0);
  EXPECT_GT(shared().metric("spyre_live_rows_head_total"), 0);
  const Json version = shared().get("/version").json();
  EXPECT_EQ(version["platform"], "spyre");
  EXPECT_TRUE(version.contains("build_id") && version.contains("kernels"));
}

TEST(Serve, AClientThatLeavesFreesItsBlocks) {
  Served served;
  {
    HttpClient client(served.port());
    const std::string body = R"({"prompt":"a","max_tokens":900,"ignore_eos":true,"n":4,"stream":true})";
    client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(eventually([&] { return served.metric("vllm:num_requests_running") > 0; }));
  }
  EXPECT_TRUE(eventually(
      [&] { return served.metric("vllm:num_requests_running") == 0 && served.metric("vllm:kv_cache_usage_perc") == 0; },
      5));
  EXPECT_THAT(served.get("/metrics").body, HasSubstr("finished_reason=\"abort\"} 4"));
}

TEST(Serve, IsNotReadyBeforeItIs) {
  const uint16_t port = free_port();
  Program program({"serve", model_folder(), "--port", std::to_string(port)});
  int before = 0;
  const bool ready = eventually(
      [&] {
        try {
          const int status = HttpClient(port).get("/health").status;
          before += status == 503;
          return status == 200;
        } catch (const std::runtime_error&) {
          return false;  // not even listening
        }
      },
      120);
  ASSERT_TRUE(ready);
  RecordProperty("refused_while_starting", before);
  ASSERT_TRUE(eventually([&] { return program.written().find('\n') != std::string::npos; }));
  const std::string line = program.written();
  EXPECT_TRUE(line.starts_with("spyre: ready")) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
}

TEST(Serve, SigtermLetsWhatRunsEnd) {
  Served served;
  auto running = std::async(std::launch::async, [&] {
    return served.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 300}, {"ignore_eos", true}});
  });
  ASSERT_TRUE(eventually([&] { return served.metric("vllm:num_requests_running") > 0; }));
  served.program().signal(SIGTERM);
  const Reply reply = running.get();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 300);
  EXPECT_EQ(served.program().wait().code, 0);
}

TEST(Serve, TheDrainHasADeadline) {
  Served served({"--drain-seconds", "0.2"});
  auto running = std::async(std::launch::async, [&] {
    return served.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"n", 16}});
  });
  ASSERT_TRUE(eventually([&] { return served.metric("vllm:num_requests_running") > 0; }));
  served.program().signal(SIGTERM);
  EXPECT_EQ(running.get().json()["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(served.program().wait().code, 0);
}

TEST(Serve, Sigusr1WritesTheLastSteps) {
  const ScratchFolder folder;
  Served served({"--flight-dir", folder.path().string()});
  const Json first = served.post("/v1/completions", kGreedy).json();
  served.program().signal(SIGUSR1);
  std::string file;
  ASSERT_TRUE(eventually([&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().filename().string().starts_with("spyre-flight-") && entry.path().extension() == ".json")
        file = entry.path().string();
    }
    return !file.empty();
  }));
  EXPECT_EQ(read_file(file).find("capital"), std::string::npos);  // no text
  EXPECT_EQ(served.post("/v1/completions", kGreedy).json()["choices"].dump(), first["choices"].dump());
  const Outcome again = run({"replay", file});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, ::testing::HasSubstr("tokens equal"));
}

TEST(Serve, KeysComeFromAFileOrTheEnvironment) {
  const ScratchFolder folder;
  const std::string path = folder.write("keys", "# two\nalpha\nbeta\n");
  Served from_file({"--api-key-file", path});
  EXPECT_EQ(from_file.get("/v1/models").status, 401);
  EXPECT_EQ(HttpClient(from_file.port()).request("GET", "/v1/models", "", "Authorization: Bearer beta\r\n").status,
            200);
  Served from_environment({}, {{"SPYRE_API_KEY", "gamma"}});
  EXPECT_EQ(from_environment.get("/v1/models").status, 401);
  EXPECT_EQ(from_environment.get("/health").status, 200);
}

TEST(Serve, BadStartsAreOneLine) {
  const std::string taken = std::to_string(shared().port());
  const std::vector<std::pair<Arguments, int>> cases = {{{"serve"}, 2},
                                                        {{"serve", "/nowhere"}, 1},
                                                        {{"serve", model_folder(), "--port", "70000"}, 2},
                                                        {{"serve", model_folder(), "--port", taken}, 1},
                                                        {{"serve", model_folder(), "--api-key-file", "/nowhere"}, 1},
                                                        {{"serve", model_folder(), "--host", "no such host"}, 1},
                                                        {{"serve", model_folder(), "--drain-seconds", "nan"}, 2},
                                                        {{"serve", model_folder(), "--served-model-name", ""}, 2},
                                                        {{"serve", model_folder(), "--flight-dir", "/nowhere"}, 2}};
  for (const auto& [arguments, code] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace spyre::system_test
