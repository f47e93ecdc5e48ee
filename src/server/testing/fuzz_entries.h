// What a fuzzer does with its input, shared with the test that replays the corpora (as formats/fuzz_entries.h): the
// text of the error, "" when the input was taken. Anything but an ApiError leaves the function and is a bug.
#pragma once

#include <string>
#include <string_view>

namespace spyre::server {

// The body of a request, to every endpoint; the error is that of /v1/completions.
std::string fuzz_request_json(std::string_view bytes);
// Bytes of a connection: requests until one is broken or cut short.
std::string fuzz_http(std::string_view bytes);

}  // namespace spyre::server
