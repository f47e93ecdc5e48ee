// HTTP/1.1 over TCP: reads requests within limits, hands them to a handler, sends what comes back.
//
// A few threads serve any number of connections; a connection is a coroutine on its own strand. The handler is called
// on a pool of its own, so that work on one request (reading JSON, tokenising) delays no stream. While a request is
// being answered its socket is watched: a client that hangs up is noticed at once. Requests may be pipelined: they are
// answered one after the other.
//
// What is refused here never reaches the handler: a header too long (431), a body too long (413), what is no HTTP
// (400), too slow a sender (the connection is closed), too many connections (503).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/exchange.h"

namespace spyre::server {

struct HttpLimits {
  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 16 << 20;
  uint64_t max_bodies_bytes = 256 << 20;  // of all connections together; more is 503
  size_t max_unsent_bytes = 4 << 20;      // of one stream; more, and the client is hung up on
  int max_connections = 4096;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a request to the end of its header
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds write_timeout{60'000};  // without a byte taken by the client
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address or a name; "0.0.0.0", "::" for all interfaces
  uint16_t port = 0;               // 0: any that is free
  int io_threads = 2;
  int handler_threads = 2;
  HttpLimits limits;
};

struct HttpCounters {
  int64_t connections = 0;  // open now
  int64_t requests = 0;     // since the start: handed to the handler
  int64_t refused = 0;      // since the start: answered or hung up on by the limits above
  int64_t vanished = 0;     // clients that left before their answer was complete
};

class HttpServer {
 public:
  // Answers through the exchange, now or later. It must not throw.
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // Listens and serves from here on. Throws Error(kInvalidArgument) when it cannot listen at the address.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  HttpCounters counters() const;

  // Waits until no request is being answered, at most |timeout|. New ones are still taken.
  bool wait_idle(std::chrono::milliseconds timeout) const;
  // Hangs up on everybody and ends the threads. Exchanges that are still held lead nowhere from then on.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spyre::server
