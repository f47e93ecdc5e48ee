// A load on an OpenAI-compatible server: streamed completions over real sockets, and when each token came.
//
// One thread runs all connections (the caller's, inside run_load()); each request has a connection of its own, as from
// clients that do not know of each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_mix.h"

namespace spyre::cli {

// http://HOST[:PORT][/PREFIX], what stands before /v1/completions.
struct LoadTarget {
  std::string host, port = "80", prefix;
  std::string key;  // sent as a bearer token unless empty
};

// Throws Error(kInvalidArgument) for what is no such URL; https is not spoken.
LoadTarget parse_url(std::string_view url);

// What became of one request. Times in seconds from the start of the load.
struct LoadResult {
  double start = 0;                 // when it was sent, connecting included
  std::vector<double> token_times;  // of each token; tokens of one event have the same
  double end = 0;
  std::string error;  // empty: answered in full
};

// The body of a GET. Throws Error(kUnavailable) when the server cannot be asked or does not answer 200.
std::string http_get(const LoadTarget& target, const std::string& path);

// Sends |requests| for |model| and waits for all answers. |clients| > 0: a closed loop, each client sends its next
// request when it has the answer to the one before; 0: each is sent at its own time. The results stand by request.
// Throws Error(kCancelled) soon after |cancel| is set. A request that fails is a result with its error.
std::vector<LoadResult> run_load(const LoadTarget& target, const std::string& model,
                                 const std::vector<MixedRequest>& requests, int64_t clients,
                                 const std::atomic<bool>& cancel);

// The tokens that an event of a stream brings: its token ids, or one where there is text and no ids; 0 for an event
// without any. Throws Error(kUnavailable) with what an error event says.
int64_t tokens_of_event(std::string_view data);

}  // namespace spyre::cli
