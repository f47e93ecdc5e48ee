#include "server/http_connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

#include "base/log.h"
#include "server/api_error.h"
#include "server/http_text.h"

namespace spyre::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Read ahead of the request that is being answered; a client that pipelines more waits, and its hanging up is noticed
// by the next write only.
constexpr size_t kMaxReadAhead = 64 << 10;
constexpr size_t kReadSize = 4096;

int64_t in_ms(steady_clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// The share of a body in HttpLimits::max_bodies_bytes, given back with the object.
class BodyReservation {
 public:
  BodyReservation(HttpCore& core, uint64_t bytes) : core_(core), bytes_(bytes) {
    granted_ = core.bodies_bytes.fetch_add(bytes) + bytes <= core.options.limits.max_bodies_bytes;
  }
  ~BodyReservation() { core_.bodies_bytes -= bytes_; }
  BodyReservation(const BodyReservation&) = delete;
  BodyReservation& operator=(const BodyReservation&) = delete;
  bool granted() const { return granted_; }

 private:
  HttpCore& core_;
  uint64_t bytes_;
  bool granted_;
};

struct Refusal {
  int status = 0;  // 0: nobody is there to be told
  std::string message;
};

Refusal refusal_of(error_code error, const HttpLimits& limits) {
  if (error == http::error::header_limit)
    return {431, fmt::format("the header is longer than {} bytes", limits.max_header_bytes)};
  if (error == http::error::body_limit)
    return {413, fmt::format("the body is longer than {} bytes", limits.max_body_bytes)};
  const bool of_parser = error.category() == http::make_error_code(http::error::bad_method).category();
  const bool left = error == http::error::end_of_stream || error == http::error::partial_message;
  if (!of_parser || left) return {};
  return {400, "not HTTP: " + error.message()};
}

}  // namespace

void set_limits(RequestParser& parser, const HttpLimits& limits) {
  parser.header_limit(limits.max_header_bytes);
  parser.body_limit(limits.max_body_bytes);
}

HttpRequest request_of(const RequestParser::value_type& message) {
  const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };  // not std's view in 1.74
  return {.method = text(message.method_string()),
          .path = std::string(target_path(text(message.target()))),
          .authorization = text(message[http::field::authorization])};
}

// A request that has been read.
struct HttpConnection::Incoming {
  HttpRequest request;
  std::string body;
  bool keep_alive = false, chunks = false;  // what the client understands
  std::shared_ptr<BodyReservation> reservation;
};

// The state of an answer lives on the connection's strand; |connection_| is dropped when the answer is complete.
class HttpExchange final : public Exchange, public std::enable_shared_from_this<HttpExchange> {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::shared_ptr<HttpConnection> connection, HttpRequest request,
               std::string body, bool keep_alive, bool chunks)
      : core_(std::move(core)),
        strand_(connection->socket_.get_executor()),
        connection_(std::move(connection)),
        request_(std::move(request)),
        body_(std::move(body)),
        keep_alive_(keep_alive),
        chunks_(chunks) {
    ++core_->answering;
  }
  ~HttpExchange() override {
    if (!complete_) --core_->answering;
  }

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(body_); }

  void post(std::function<void()> work) override {
    if (core_->stopped) return;
    asio::post(strand_, [self = shared_from_this(), work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& error) {
        self->give_up(error.what());
      }
    });
  }
  void respond(HttpResponse response) override {
    on_strand([response = std::move(response)](HttpExchange& x) {
      std::string bytes = response_bytes(response, x.keep_alive_);
      if (x.request_.method == "HEAD") bytes.resize(bytes.size() - response.body.size());  // its client reads no body
      x.send(bytes);
      x.finish();
    });
  }
  void begin_stream() override {
    on_strand([](HttpExchange& x) {
      x.keep_alive_ = x.keep_alive_ && x.chunks_;
      x.send(stream_head(x.chunks_, x.keep_alive_));
    });
  }
  void write(std::string events) override {
    on_strand([events = std::move(events)](HttpExchange& x) {
      if (!events.empty()) x.send(x.chunks_ ? chunk_bytes(events) : events);
    });
  }
  void end_stream() override {
    on_strand([](HttpExchange& x) {
      if (x.chunks_) x.send(kLastChunk);
      x.finish();
    });
  }
  void on_gone(std::function<void()> action) override {
    if (core_->stopped) return;
    asio::dispatch(strand_, [self = shared_from_this(), action = std::move(action)] {
      if (self->gone_) return action();
      if (!self->complete_) self->gone_actions_.push_back(action);
    });
  }

  // On the strand.
  bool complete() const { return complete_; }
  bool keep_alive() const { return keep_alive_; }
  void client_gone() {
    if (gone_ || complete_) return;
    gone_ = true;
    ++core_->vanished;
    for (auto& action : gone_actions_) action();
    finish();
  }

 private:
  // What an answer trips over (memory, a bug of ours) ends that answer: its client is hung up on, its request cancelled.
  void give_up(const char* why) {
    log().error("an answer was given up: {}", why);
    const std::shared_ptr<HttpConnection> connection = connection_;
    if (connection) connection->client_gone();
  }
  template <typename F>
  void on_strand(F&& action) {
    if (core_->stopped) return;
    asio::dispatch(strand_, [self = shared_from_this(), action = std::forward<F>(action)] {
      if (!self->complete_) action(*self);
    });
  }
  void send(std::string_view bytes) {
    connection_->outbox_ += bytes;
    if (connection_->outbox_.size() + connection_->sending_ > core_->options.limits.max_unsent_bytes && started_) {
      log().info("hanging up on a client that left {} bytes unread", connection_->outbox_.size());
      connection_->client_gone();
      return;
    }
    started_ = true;  // a single answer may be as long as it is
    connection_->wake();
  }
  void finish() {
    if (complete_) return;
    complete_ = true;
    --core_->answering;
    gone_actions_.clear();
    if (const auto connection = std::move(connection_)) connection->wake();
  }

  const std::shared_ptr<HttpCore> core_;
  const tcp::socket::executor_type strand_;
  std::shared_ptr<HttpConnection> connection_;
  const HttpRequest request_;
  std::string body_;
  bool keep_alive_;
  const bool chunks_;
  bool started_ = false, gone_ = false;
  std::atomic<bool> complete_ = false;
  std::vector<std::function<void()>> gone_actions_;
};

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, tcp::socket socket)
    : core_(std::move(core)), socket_(std::move(socket)), wake_(socket_.get_executor()) {
  ++core_->connections;
}

HttpConnection::~HttpConnection() {
  --core_->connections;
}

void HttpConnection::set_timeout(milliseconds timeout) {
  deadline_ = in_ms(steady_clock::now() + timeout);
}

void HttpConnection::close_if_late(steady_clock::time_point now) {
  if (in_ms(now) > deadline_) close_soon();
}

void HttpConnection::close_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->exchange_) self->client_gone();
    self->close();
  });
}

void HttpConnection::close() {
  error_code ignored;
  socket_.close(ignored);
  wake();
}

void HttpConnection::client_gone() {
  gone_ = true;
  if (exchange_) exchange_->client_gone();
  outbox_.clear();
  close();
}

asio::awaitable<void> HttpConnection::sleep() {
  error_code woken;
  wake_.expires_at(steady_clock::time_point::max());
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, woken));
}

asio::awaitable<void> HttpConnection::run(std::shared_ptr<HttpConnection> self) {
  try {
    while (!self->core_->stopped) {
      const bool go_on = co_await self->serve_one();
      if (!go_on) break;
    }
  } catch (const std::exception& error) {
    log().error("connection: {}", error.what());
    self->client_gone();
  }
  self->close();
}

asio::awaitable<bool> HttpConnection::serve_one() {
  Incoming incoming;
  const bool read = co_await read_request(incoming);
  if (!read) co_return false;
  const bool go_on = co_await answer(incoming);
  co_return go_on;
}

asio::awaitable<bool> HttpConnection::read_request(Incoming& incoming) {
  const HttpLimits& limits = core_->options.limits;
  error_code error;
  set_timeout(limits.idle_timeout);
  if (buffer_.size() == 0) {  // waiting costs no parser
    const size_t n =
        co_await socket_.async_read_some(buffer_.prepare(kReadSize), asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
    buffer_.commit(n);
  }
  set_timeout(limits.header_timeout);
  RequestParser parser;
  set_limits(parser, limits);
  co_await http::async_read_header(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  if (!error) {
    const auto length = parser.content_length();
    const uint64_t reserve = length ? *length : parser.chunked() ? limits.max_body_bytes : 0;
    incoming.reservation = std::make_shared<BodyReservation>(*core_, reserve);
    if (!incoming.reservation->granted()) {
      incoming.reservation.reset();  // refusing takes a while, and nothing will be read
      co_await refuse(503, "the server holds as many request bodies as it may; try again later");
      co_return false;
    }
    // Read with another length than it was sent with, the rest of such a body would be the next request.
    const auto encoding = parser.get()[http::field::transfer_encoding];
    if (!encoding.empty() && !boost::beast::iequals(encoding, "chunked")) {
      incoming.reservation.reset();
      co_await refuse(501, "the only Transfer-Encoding that is read is chunked");
      co_return false;
    }
    set_timeout(limits.body_timeout);
    if (!parser.is_done() && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      const bool sent = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return false;
      set_timeout(limits.body_timeout);
    }
    co_await http::async_read(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  }
  no_timeout();
  if (error) {
    incoming.reservation.reset();
    const Refusal refusal = refusal_of(error, limits);
    if (refusal.status != 0) co_await refuse(refusal.status, refusal.message);
    co_return false;
  }
  auto& message = parser.get();
  incoming.keep_alive = message.keep_alive();
  incoming.chunks = message.version() >= 11;
  incoming.request = request_of(message);
  incoming.body = std::move(message.body());
  co_return true;
}

asio::awaitable<bool> HttpConnection::answer(Incoming& incoming) {
  exchange_ = std::make_shared<HttpExchange>(core_, shared_from_this(), std::move(incoming.request),
                                             std::move(incoming.body), incoming.keep_alive, incoming.chunks);
  ++core_->requests;
  watching_ = watch_runs_ = true;
  asio::co_spawn(socket_.get_executor(), watch(shared_from_this()), asio::detached);
  asio::post(core_->handlers,
             [core = core_, exchange = exchange_, held = std::move(incoming.reservation)] { core->handler(exchange); });
  for (;;) {
    if (!outbox_.empty()) {
      std::string bytes = std::exchange(outbox_, {});
      const bool sent = co_await send(std::move(bytes));
      if (!sent) client_gone();
      continue;
    }
    if (gone_ || exchange_->complete()) break;
    co_await sleep();
  }
  watching_ = false;
  error_code ignored;
  socket_.cancel(ignored);
  while (watch_runs_) co_await sleep();
  const bool keep_alive = exchange_->keep_alive() && !gone_;
  exchange_.reset();
  if (!keep_alive && !gone_) co_await linger();
  co_return keep_alive;
}

// Reads on while a request is answered: to notice that the client has hung up, and to keep what it pipelines.
asio::awaitable<void> HttpConnection::watch(std::shared_ptr<HttpConnection> self) {
  error_code error;
  while (self->watching_ && self->buffer_.size() < kMaxReadAhead) {
    const size_t n = co_await self->socket_.async_read_some(self->buffer_.prepare(kReadSize),
                                                            asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      if (self->watching_) self->client_gone();
      break;
    }
    self->buffer_.commit(n);
  }
  self->watch_runs_ = false;
  self->wake();
}

asio::awaitable<bool> HttpConnection::send(std::string bytes) {
  error_code error;
  size_t sent = 0;
  while (sent < bytes.size()) {
    set_timeout(core_->options.limits.write_timeout);
    sending_ = bytes.size() - sent;
    sent += co_await socket_.async_write_some(asio::buffer(bytes.data() + sent, sending_),
                                              asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
  }
  sending_ = 0;
  no_timeout();
  co_return !error;
}

asio::awaitable<void> HttpConnection::refuse(int status, std::string message) {
  ++core_->refused;
  const HttpResponse response = error_response(ApiError(status, std::move(message)));
  const bool sent = co_await send(response_bytes(response, false));
  if (sent) co_await linger();
}

// Closing with unread bytes resets the connection, and the client may never see the answer: so take in what still
// comes, for a moment.
asio::awaitable<void> HttpConnection::linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  buffer_.consume(buffer_.size());
  set_timeout(milliseconds(2000));
  uint64_t left = 2 * core_->options.limits.max_body_bytes;
  while (!error && left > 0) {
    const size_t n =
        co_await socket_.async_read_some(buffer_.prepare(kReadSize), asio::redirect_error(asio::use_awaitable, error));
    left -= std::min<uint64_t>(left, n);
  }
  no_timeout();
}

}  // namespace spyre::server
