// One connection of the HTTP server: in this room http_connection.cc and http_server.cc alone see Boost.Asio and Beast.
#pragma once

// Boost 1.74 uses std::exchange without asking for it, and asks clang for coroutines by a macro that clang has dropped.
// So this header comes before any of Boost's.
#include <utility>
#if defined(__clang__) && !defined(BOOST_ASIO_HAS_CO_AWAIT)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1
#endif

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <string>

#include "server/exchange.h"
#include "server/http_server.h"

namespace spyre::server {

// What the connections of a server share. Every exchange holds it, so that it outlives them all.
struct HttpCore {
  HttpCore(const HttpOptions& given, HttpServer::Handler answer)
      : options(given), handler(std::move(answer)), handlers(static_cast<size_t>(given.handler_threads)) {}

  HttpOptions options;
  HttpServer::Handler handler;
  boost::asio::io_context io;
  boost::asio::thread_pool handlers;
  std::atomic<bool> stopped{false};
  std::atomic<int64_t> connections{0}, requests{0}, refused{0}, vanished{0};
  std::atomic<int64_t> answering{0};      // exchanges whose answer is not complete
  std::atomic<uint64_t> bodies_bytes{0};  // reserved for bodies that are being read or handled
};

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

void set_limits(RequestParser& parser, const HttpLimits& limits);
// What the handler sees of a parsed request; the body is left in it.
HttpRequest request_of(const RequestParser::value_type& message);

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // The socket's executor is a strand: everything below runs on it.
  HttpConnection(std::shared_ptr<HttpCore> core, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();

  static boost::asio::awaitable<void> run(std::shared_ptr<HttpConnection> self);

  void close_if_late(std::chrono::steady_clock::time_point now);  // any thread
  void close_soon();                                              // any thread

 private:
  friend class HttpExchange;
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  struct Incoming;

  Awaitable<bool> serve_one();  // one request; false: the connection ends
  Awaitable<bool> read_request(Incoming& incoming);
  Awaitable<bool> answer(Incoming& incoming);
  Awaitable<void> refuse(int status, std::string message);
  Awaitable<void> linger();
  Awaitable<bool> send(std::string bytes);
  Awaitable<void> sleep();  // until wake()
  static Awaitable<void> watch(std::shared_ptr<HttpConnection> self);

  void wake() { wake_.cancel(); }
  void set_timeout(std::chrono::milliseconds timeout);
  void no_timeout() { deadline_ = kNever; }
  void close();
  void client_gone();

  static constexpr int64_t kNever = INT64_MAX;

  std::shared_ptr<HttpCore> core_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer wake_;
  boost::beast::flat_buffer buffer_;       // read, not yet consumed
  std::atomic<int64_t> deadline_{kNever};  // steady clock, ms

  std::shared_ptr<class HttpExchange> exchange_;  // the one that is being answered
  std::string outbox_;                            // to be sent
  size_t sending_ = 0;                            // bytes of the send that is under way
  bool watching_ = false, watch_runs_ = false, gone_ = false;
};

}  // namespace spyre::server
