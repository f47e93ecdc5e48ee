#include "server/testing/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace spyre::server::testing {

Json Reply::json() const {
  Json out = Json::parse(body, nullptr, false);
  return out.is_discarded() ? Json(nullptr) : out;
}

HttpClient::HttpClient(uint16_t port) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    throw std::runtime_error(fmt::format("cannot connect to port {}", port));
  }
}

HttpClient::~HttpClient() {
  close(fd_);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void HttpClient::shut_down_sending() {
  shutdown(fd_, SHUT_WR);
}

bool HttpClient::fill(double seconds) {
  pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char bytes[65536];
  const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string HttpClient::receive(double seconds) {
  if (buffer_.empty()) fill(seconds);
  return std::exchange(buffer_, {});
}

bool HttpClient::closed(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 100) <= 0) continue;
    char bytes[65536];
    if (recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

Reply HttpClient::reply(double seconds) {
  Reply reply;
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
    if (!fill(seconds)) return reply;
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  size_t line = head.find("\r\n") + 2;
  while (line < head.size()) {
    const size_t stop = head.find("\r\n", line), colon = head.find(": ", line);
    std::string name = head.substr(line, colon - line);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
    line = stop + 2;
  }
  const int status = std::stoi(head.substr(9, 3));
  if (status == 100) return this->reply(seconds);
  const auto encoding = reply.headers.find("transfer-encoding");
  if (encoding != reply.headers.end() && encoding->second == "chunked") {
    for (;;) {
      size_t size_end = 0;
      while ((size_end = buffer_.find("\r\n")) == buffer_.npos) {
        if (!fill(seconds)) return reply;  // cut short: status stays 0
      }
      const size_t size = std::stoul(buffer_.substr(0, size_end), nullptr, 16);
      while (buffer_.size() < size_end + 2 + size + 2) {
        if (!fill(seconds)) return reply;
      }
      reply.body += buffer_.substr(size_end + 2, size);
      buffer_.erase(0, size_end + 2 + size + 2);
      if (size == 0) break;
    }
  } else if (reply.headers.contains("content-length")) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    while (buffer_.size() < length) {
      if (!fill(seconds)) return reply;
    }
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
  } else {
    while (fill(seconds)) {
    }
    reply.body = std::exchange(buffer_, {});
  }
  reply.status = status;
  return reply;
}

Reply HttpClient::request(std::string_view method, std::string_view path, std::string_view body,
                          std::string_view headers) {
  send(fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                   method, path, body.size(), headers, body));
  return reply();
}

std::vector<std::string> events_of(std::string_view body) {
  std::vector<std::string> out;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    if (!body.starts_with("data: ") || end == body.npos) {
      out.push_back("malformed: " + std::string(body));
      break;
    }
    out.emplace_back(body.substr(6, end - 6));
    body.remove_prefix(end + 2);
  }
  return out;
}

}  // namespace spyre::server::testing
