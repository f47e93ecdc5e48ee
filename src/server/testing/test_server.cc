#include "server/testing/test_server.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace spyre::server::testing {
namespace {

std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string out;
  for (const Json& part : content)
    out += part.is_string() ? part.get<std::string>() : part.at("text").get<std::string>();
  return out;
}

ChatPromptIds chat_ml(const ChatArguments& arguments) {
  ChatPromptIds out;
  for (const Json& message : arguments.messages) {
    const auto role = message.at("role").get<std::string>();
    if (role == "nobody") throw_error(ErrorCode::kInvalidArgument, "the template knows no role nobody");
    out.text += "<|im_start|>" + role + "\n" + text_of(message.at("content")) + "<|im_end|>\n";
  }
  if (arguments.add_generation_prompt) out.text += "<|im_start|>assistant\n";
  out.ids = tiny_tokenizer().encode(out.text, {.add_special = arguments.add_special_tokens, .parse_special = true});
  return out;
}

}  // namespace

const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    std::ifstream file(std::filesystem::path(SPYRE_TEST_DATA) / "tiny_tokenizer.json", std::ios::binary);
    return text::Tokenizer::from_json(std::string{std::istreambuf_iterator<char>(file), {}});
  }();
  return tokenizer;
}

TestServer::TestServer(const TestServerOptions& options)
    : engine({.tokenizer = options.tokenizer ? &tiny_tokenizer() : nullptr,
              .limits = {.max_model_len = 512,
                         .vocab_size = 502,
                         .max_num_seqs = 16,
                         .max_queue = options.max_queue,
                         .max_logprobs = 20},
              .step = options.step}),
      api({.keys = options.keys, .json = {}}) {
  model.names = {"tiny", "alias"};
  model.root = "/models/tiny";
  model.created = 1700000000;
  model.engine = &engine;
  model.tokenizer = options.tokenizer ? &tiny_tokenizer() : nullptr;
  if (options.chat) model.chat = chat_ml;
  model.eos_token_ids = {3};
  model.defaults = options.defaults;
  model.version = {{"platform", "fake"}};
  model.limits.vocab_size = 502;
  model.limits.max_model_len = 512;
  if (options.ready) api.serve(model);
  server_ = std::make_unique<HttpServer>(HttpOptions{.limits = options.http},
                                         [this](auto exchange) { api.handle(exchange); });
  api.set_http_counters([this] { return server_->counters(); });
}

bool TestServer::eventually(const std::function<bool()>& condition, double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace spyre::server::testing
