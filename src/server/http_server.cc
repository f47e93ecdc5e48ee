#include "server/http_server.h"

#include "server/http_connection.h"  // first: it mends what Boost's headers lack

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <list>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/http_text.h"

namespace spyre::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct HttpServer::Impl {
  Impl(const HttpOptions& options, Handler handler)
      : core(std::make_shared<HttpCore>(options, std::move(handler))),
        strand(asio::make_strand(core->io)),
        acceptor(strand),
        sweeper(strand) {}

  void listen();
  asio::awaitable<void> accept();
  asio::awaitable<void> sweep();
  void add(tcp::socket socket);
  void refuse(tcp::socket socket);

  std::shared_ptr<HttpCore> core;
  const asio::strand<asio::io_context::executor_type> strand;  // who touches the acceptor and the sweeper
  tcp::acceptor acceptor;
  asio::steady_timer sweeper;
  std::mutex mutex;
  std::list<std::weak_ptr<HttpConnection>> connections;
  std::vector<std::thread> threads;
  uint16_t port = 0;
};

void HttpServer::Impl::listen() {
  const HttpOptions& o = core->options;
  error_code error;
  tcp::resolver resolver(core->io);
  const auto found = resolver.resolve(o.host, std::to_string(o.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "cannot listen on host '{}': {}", o.host, error.message());
  }
  const tcp::endpoint endpoint = *found.begin();
  try {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(tcp::acceptor::max_listen_connections);
  } catch (const boost::system::system_error& failed) {
    throw_error(ErrorCode::kInvalidArgument, "cannot listen on {}:{}: {}", o.host, o.port, failed.code().message());
  }
  port = acceptor.local_endpoint().port();
}

asio::awaitable<void> HttpServer::Impl::accept() {
  error_code error;
  while (!core->stopped) {
    tcp::socket socket(asio::make_strand(core->io));
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (core->stopped) break;
    if (error) {  // out of descriptors, most likely: those in use come back
      log().warn("accept: {}", error.message());
      asio::steady_timer pause(strand, milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    if (core->connections >= core->options.limits.max_connections) {
      refuse(std::move(socket));
    } else {
      add(std::move(socket));
    }
  }
}

void HttpServer::Impl::add(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto executor = socket.get_executor();
  auto connection = std::make_shared<HttpConnection>(core, std::move(socket));
  {
    const std::lock_guard lock(mutex);
    connections.push_back(connection);
  }
  asio::co_spawn(executor, HttpConnection::run(std::move(connection)), asio::detached);
}

// Never waits: what does not fit into the socket's buffer at once is not said.
void HttpServer::Impl::refuse(tcp::socket socket) {
  ++core->refused;
  const HttpResponse response = error_response(ApiError(
      503, fmt::format("there are already {} connections; try again later", core->options.limits.max_connections)));
  const std::string bytes = response_bytes(response, false);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
}

// Hangs up on connections that are past their deadline: one timer for all of them.
asio::awaitable<void> HttpServer::Impl::sweep() {
  error_code error;
  while (!core->stopped) {
    sweeper.expires_after(milliseconds(200));
    co_await sweeper.async_wait(asio::redirect_error(asio::use_awaitable, error));
    const auto now = steady_clock::now();
    const std::lock_guard lock(mutex);
    connections.remove_if([now](const std::weak_ptr<HttpConnection>& weak) {
      const auto connection = weak.lock();
      if (connection) connection->close_if_late(now);
      return connection == nullptr;
    });
  }
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {
  impl_->listen();
  asio::co_spawn(impl_->strand, impl_->accept(), asio::detached);
  asio::co_spawn(impl_->strand, impl_->sweep(), asio::detached);
  for (int i = 0; i < options.io_threads; ++i) {
    impl_->threads.emplace_back([core = impl_->core] { core->io.run(); });
  }
}

HttpServer::~HttpServer() {
  stop();
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

HttpCounters HttpServer::counters() const {
  const HttpCore& core = *impl_->core;
  return {
      .connections = core.connections, .requests = core.requests, .refused = core.refused, .vanished = core.vanished};
}

bool HttpServer::wait_idle(milliseconds timeout) const {
  const auto end = steady_clock::now() + timeout;
  while (impl_->core->answering > 0) {
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

void HttpServer::stop() {
  HttpCore& core = *impl_->core;
  if (core.stopped.exchange(true)) return;
  asio::post(impl_->strand, [this] {
    error_code ignored;
    impl_->acceptor.close(ignored);
    impl_->sweeper.cancel();
  });
  {
    const std::lock_guard lock(impl_->mutex);
    for (const auto& weak : impl_->connections) {
      if (const auto connection = weak.lock()) connection->close_soon();
    }
  }
  core.handlers.join();
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace spyre::server
