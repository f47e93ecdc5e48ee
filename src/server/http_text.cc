#include "server/http_text.h"

#include <fmt/format.h>

#include <iterator>

namespace spyre::server {

std::string_view status_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "";
  }
}

std::string response_bytes(const HttpResponse& response, bool keep_alive) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\nServer: spyre\r\nContent-Type: {}\r\nContent-Length: {}\r\n", response.status,
                  status_phrase(response.status), response.content_type, response.body.size());
  for (const auto& [name, value] : response.headers) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out += response.body;
}

std::string stream_head(bool chunked, bool keep_alive) {
  std::string out =
      "HTTP/1.1 200 OK\r\nServer: spyre\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: "
      "no-cache\r\n";
  if (chunked) out += "Transfer-Encoding: chunked\r\n";
  return out += chunked && keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

std::string chunk_bytes(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

std::string_view target_path(std::string_view target) {
  target = target.substr(0, target.find_first_of("?#"));
  if (target.starts_with('/')) return target;
  const size_t scheme = target.find("://");
  if (scheme == target.npos) return target;
  const size_t slash = target.find('/', scheme + 3);
  return slash == target.npos ? std::string_view("/") : target.substr(slash);
}

}  // namespace spyre::server
