// A small blocking HTTP client over a plain socket, for tests: it sends bytes as they are given.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "server/json_reader.h"

namespace spyre::server::testing {

struct Reply {
  int status = 0;                              // 0: the connection ended without an answer
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;                            // chunks joined

  Json json() const;  // null when the body is none
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);  // gives up silently when the server hung up
  void shut_down_sending();
  // Whatever comes within |seconds|, at least a byte unless the connection ends or the time is over.
  std::string receive(double seconds = 10);
  bool closed(double seconds = 10);  // reads until the other side hangs up
  Reply reply(double seconds = 20);

  Reply request(std::string_view method, std::string_view path, std::string_view body = "",
                std::string_view headers = "");
  Reply post(std::string_view path, std::string_view body) { return request("POST", path, body); }
  Reply get(std::string_view path) { return request("GET", path); }

 private:
  bool fill(double seconds);
  int fd_ = -1;
  std::string buffer_;
};

// The data of each event of a stream, "[DONE]" included.
std::vector<std::string> events_of(std::string_view body);

}  // namespace spyre::server::testing
