// The bytes of HTTP/1.1 answers.
#pragma once

#include <string>
#include <string_view>

#include "server/exchange.h"

namespace spyre::server {

std::string_view status_phrase(int status);  // "Not Found"; "" for a status we never send

// A whole answer.
std::string response_bytes(const HttpResponse& response, bool keep_alive);
// The head of an event stream: chunked, or, for a client that knows no chunks, ended by closing.
std::string stream_head(bool chunked, bool keep_alive);
std::string chunk_bytes(std::string_view data);  // REQUIRES: data is not empty (an empty chunk ends the stream)
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// The path of a request's target, decoded no further: "/v1/models?x=1" and "http://host/v1/models" are "/v1/models".
std::string_view target_path(std::string_view target);

}  // namespace spyre::server
