#include "server/testing/fuzz_entries.h"

#include "server/http_connection.h"  // before Boost's own headers

#include <boost/asio/buffer.hpp>

#include "server/api_error.h"
#include "server/chat.h"
#include "server/completions.h"

namespace spyre::server {
namespace {

constexpr int64_t kVocabulary = 500, kContext = 128;

ServedModel fuzz_model() {
  ServedModel model;
  model.names = {"fuzz"};
  model.eos_token_ids = {3};
  model.limits.vocab_size = kVocabulary;
  model.limits.max_model_len = kContext;
  model.chat = [](const ChatArguments& arguments) {
    ChatPromptIds out;
    for (const char c : dump(arguments.messages).substr(0, 100)) out.ids.push_back(static_cast<unsigned char>(c));
    return out;
  };
  return model;
}

void check(const GenerationPlan& plan) {
  for (const engine::Request& request : plan.requests) {
    SPYRE_CHECK(!request.prompt_ids.empty() && request.n >= 1);
    const auto length = static_cast<int64_t>(request.prompt_ids.size());
    SPYRE_CHECK(request.sampling.max_tokens >= 0 && length + request.sampling.max_tokens <= kContext);
    for (const int32_t id : request.prompt_ids) SPYRE_CHECK(id >= 0 && id < kVocabulary);
    for (const auto& [id, bias] : request.sampling.logit_bias)
      SPYRE_CHECK(id >= 0 && id < kVocabulary && bias >= -100 && bias <= 100);
  }
}

template <typename F>
std::string error_of(F&& read) {
  try {
    read();
  } catch (const ApiError& error) {
    SPYRE_CHECK(error.status() == 400 || error.status() == 404, "{}", error.what());
    return error.what();
  }
  return "";
}

}  // namespace

std::string fuzz_request_json(std::string_view bytes) {
  static const ServedModel model = fuzz_model();
  Json body;
  const std::string broken = error_of([&] { body = parse_json(bytes); });
  if (!broken.empty()) return broken;
  SPYRE_CHECK(parse_json(dump(body)) == body);
  error_of([&] { check(plan_chat(body, model)); });
  error_of([&] { check_fields(body, tokenize_fields(), model.limits); });
  error_of([&] { check_fields(body, detokenize_fields(), model.limits); });
  return error_of([&] { check(plan_completion(body, model)); });
}

std::string fuzz_http(std::string_view bytes) {
  const HttpLimits limits{.max_header_bytes = 4096, .max_body_bytes = 65536};
  while (!bytes.empty()) {
    RequestParser parser;
    parser.eager(true);
    set_limits(parser, limits);
    boost::system::error_code error;
    size_t used = 0;
    while (!parser.is_done()) {
      const size_t n = parser.put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), error);
      used += n;
      if (error || n == 0) break;
    }
    if (error) return error.message();
    if (!parser.is_done()) return "cut short";
    const HttpRequest request = request_of(parser.get());
    SPYRE_CHECK(request.path.find('?') == std::string::npos);
    SPYRE_CHECK(parser.get().body().size() <= limits.max_body_bytes);
    bytes.remove_prefix(used);
  }
  return "";
}

}  // namespace spyre::server
