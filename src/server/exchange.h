// One HTTP request and the way back to whoever sent it: what the protocol code sees of a connection.
//
// An Exchange is made by the HTTP server for one request and shared with those who answer it (a handler, the callback
// of a generation): it lives as long as any of them holds it, also when the client is gone. All methods may be called
// from any thread and none blocks. An answer is either one respond(), or begin_stream(), write()..., end_stream(); what
// comes after the end, or after the client has gone, is dropped.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spyre::server {

struct HttpRequest {
  std::string method;         // "POST"
  std::string path;           // without the query
  std::string authorization;  // the header's value
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;  // further ones
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual std::string take_body() = 0;  // once; by the handler

  // Runs |work| later, one piece of work at a time, in the order of the calls.
  virtual void post(std::function<void()> work) = 0;

  virtual void respond(HttpResponse response) = 0;

  // A stream of server-sent events. write() takes whole events; a client that reads too slowly for its buffer is hung
  // up on.
  virtual void begin_stream() = 0;
  virtual void write(std::string events) = 0;
  virtual void end_stream() = 0;

  // |action| runs once, by post(), if the client goes before the answer is complete; at once if it has gone.
  virtual void on_gone(std::function<void()> action) = 0;
};

}  // namespace spyre::server
