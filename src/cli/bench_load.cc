#include "cli/bench_load.h"

// As in server/http_connection.h: Boost 1.74 uses std::exchange without asking for it, and asks clang for coroutines by
// a macro that clang has dropped.
#include <utility>
#if defined(__clang__) && !defined(BOOST_ASIO_HAS_CO_AWAIT)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1
#endif

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spyre::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Parser = http::response_parser<http::string_body>;

constexpr uint64_t kMaxBody = uint64_t{1} << 32;

std::string request_bytes(const LoadTarget& target, const std::string& method, const std::string& path,
                          const std::string& body) {
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", method, target.prefix, path, target.host);
  if (!target.key.empty()) out += "Authorization: Bearer " + target.key + "\r\n";
  if (!body.empty()) out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return out + "\r\n" + body;
}

std::string completion_body(const std::string& model, const MixedRequest& request) {
  return json{{"model", model},          {"prompt", request.prompt_ids}, {"max_tokens", request.output_tokens},
              {"temperature", 0},        {"ignore_eos", true},           {"stream", true},
              {"return_token_ids", true}}
      .dump();
}

// The data of the events that are whole in |text|; what is left stays in it.
template <typename F>
void take_events(std::string& text, F&& take) {
  size_t begin = 0;
  for (size_t end = text.find("\n\n"); end != std::string::npos; end = text.find("\n\n", begin)) {
    const std::string_view event(text.data() + begin, end - begin);
    if (event.starts_with("data:")) take(event.substr(event.find_first_not_of(' ', 5)));
    begin = end + 2;
  }
  text.erase(0, begin);
}

class Load {
 public:
  Load(const LoadTarget& target, const std::string& model, const std::vector<MixedRequest>& requests,
       const std::atomic<bool>& cancel)
      : target_(target), model_(model), requests_(requests), cancel_(cancel), results_(requests.size()) {
    tcp::resolver resolver(io_);
    boost::system::error_code error;
    endpoints_ = resolver.resolve(target.host, target.port, error);
    if (error) throw_error(ErrorCode::kUnavailable, "{}:{}: {}", target.host, target.port, error.message());
  }

  std::vector<LoadResult> run(int64_t clients) {
    begin_ = Clock::now();
    const size_t coroutines =
        clients > 0 ? std::min<size_t>(static_cast<size_t>(clients), requests_.size()) : requests_.size();
    alive_ = coroutines;
    for (size_t i = 0; i < coroutines; ++i) {
      asio::co_spawn(io_, clients > 0 ? client() : at_its_time(i), [this](const std::exception_ptr&) {
        if (--alive_ == 0) io_.stop();
      });
    }
    asio::co_spawn(io_, watch(), asio::detached);
    io_.run();
    if (cancel_) throw_error(ErrorCode::kCancelled, "interrupted");
    return std::move(results_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  asio::awaitable<void> watch() {
    asio::steady_timer timer(io_);
    while (!cancel_) {
      timer.expires_after(std::chrono::milliseconds(50));
      co_await timer.async_wait(asio::use_awaitable);
    }
    io_.stop();
  }
  asio::awaitable<void> client() {
    while (next_ < requests_.size()) co_await request(next_++);
  }
  asio::awaitable<void> at_its_time(size_t index) {
    asio::steady_timer timer(
        io_, begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(requests_[index].at)));
    co_await timer.async_wait(asio::use_awaitable);
    co_await request(index);
  }
  asio::awaitable<void> request(size_t index) {
    LoadResult& result = results_[index];
    const std::string body = completion_body(model_, requests_[index]);
    result.start = now();
    try {
      tcp::socket socket(io_);
      co_await asio::async_connect(socket, endpoints_, asio::use_awaitable);
      socket.set_option(tcp::no_delay(true));
      const std::string bytes = request_bytes(target_, "POST", "/v1/completions", body);
      co_await asio::async_write(socket, asio::buffer(bytes), asio::use_awaitable);
      co_await read_answer(socket, result);
    } catch (const std::exception& error) {  // boost's of the socket and the parser, ours of an event
      result.error = error.what();
    }
    result.end = now();
    const auto came = static_cast<int64_t>(result.token_times.size());
    if (result.error.empty() && came < requests_[index].output_tokens) {
      result.error = fmt::format("{} tokens came, {} were asked for", came, requests_[index].output_tokens);
    }
  }
  asio::awaitable<void> read_answer(tcp::socket& socket, LoadResult& result) {
    beast::flat_buffer buffer;
    Parser parser;
    parser.body_limit(kMaxBody);
    std::string text;
    while (!parser.is_done()) {
      co_await http::async_read_some(socket, buffer, parser, asio::use_awaitable);
      std::string& body = parser.get().body();
      text += body;
      body.clear();
      if (parser.get().result_int() != 200) continue;  // an error: its body is no stream
      const double time = now();
      take_events(text, [&](std::string_view data) {
        if (data == "[DONE]") return;
        result.token_times.insert(result.token_times.end(), static_cast<size_t>(tokens_of_event(data)), time);
      });
    }
    if (parser.get().result_int() != 200) {
      result.error = fmt::format("HTTP {}: {}", parser.get().result_int(), text.substr(0, 200));
    }
  }

  const LoadTarget& target_;
  const std::string& model_;
  const std::vector<MixedRequest>& requests_;
  const std::atomic<bool>& cancel_;
  asio::io_context io_{1};
  tcp::resolver::results_type endpoints_;
  Clock::time_point begin_;
  std::vector<LoadResult> results_;
  size_t next_ = 0, alive_ = 0;
};

}  // namespace

LoadTarget parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  LoadTarget target;
  const std::string_view rest = url.starts_with(kScheme) ? url.substr(kScheme.size()) : std::string_view();
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : authority.find(':', bracket);
  if (colon != std::string_view::npos) {
    target.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) authority = authority.substr(1, authority.size() - 2);
  target.host = authority;
  target.prefix = rest.substr(slash);
  while (target.prefix.ends_with('/')) target.prefix.pop_back();
  const bool number = !target.port.empty() && target.port.find_first_not_of("0123456789") == std::string::npos;
  const bool odd = std::any_of(url.begin(), url.end(), [](char c) { return static_cast<unsigned char>(c) <= ' '; });
  if (target.host.empty() || !number || target.port.size() > 5 || odd) {
    throw_error(ErrorCode::kInvalidArgument, "'{}' is not http://HOST[:PORT][/PREFIX] (TLS is not spoken)", url);
  }
  return target;
}

int64_t tokens_of_event(std::string_view data) {
  const json event = json::parse(data, nullptr, false);
  if (event.is_discarded() || !event.is_object()) throw_error(ErrorCode::kUnavailable, "an event is no JSON: {}", data);
  if (event.contains("error")) throw_error(ErrorCode::kUnavailable, "{}", event["error"].dump());
  int64_t tokens = 0;
  for (const json& choice : event.value("choices", json::array())) {
    const auto ids = choice.find("token_ids");
    const auto text = choice.find("text");
    if (ids != choice.end() && ids->is_array()) {
      tokens += std::ssize(*ids);
    } else if (text != choice.end() && text->is_string() && !text->get_ref<const std::string&>().empty()) {
      ++tokens;
    }
  }
  return tokens;
}

std::string http_get(const LoadTarget& target, const std::string& path) {
  try {
    asio::io_context io;
    tcp::socket socket(io);
    asio::connect(socket, tcp::resolver(io).resolve(target.host, target.port));
    asio::write(socket, asio::buffer(request_bytes(target, "GET", path, "")));
    beast::flat_buffer buffer;
    Parser parser;
    parser.body_limit(kMaxBody);
    http::read(socket, buffer, parser);
    if (parser.get().result_int() != 200) {
      throw_error(ErrorCode::kUnavailable, "http://{}:{}{}{}: HTTP {}", target.host, target.port, target.prefix, path,
                  parser.get().result_int());
    }
    return parser.get().body();
  } catch (const boost::system::system_error& error) {
    throw_error(ErrorCode::kUnavailable, "http://{}:{}: {}", target.host, target.port, error.code().message());
  }
}

std::vector<LoadResult> run_load(const LoadTarget& target, const std::string& model,
                                 const std::vector<MixedRequest>& requests, int64_t clients,
                                 const std::atomic<bool>& cancel) {
  return Load(target, model, requests, cancel).run(clients);
}

}  // namespace spyre::cli
