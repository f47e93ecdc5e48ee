// The OpenAI API over a model: routes, keys, readiness.
//
// An Api answers from the start: before serve() has been called, and after drain(), what needs the model is a 503,
// /health too. handle() may be called from any number of threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "server/exchange.h"
#include "server/http_server.h"
#include "server/served_model.h"

namespace spyre::server {

struct ApiOptions {
  std::vector<std::string> keys;  // none: no key is asked for
  JsonLimits json;
};

// What routes there are, for the docs.
struct RouteInfo {
  std::string_view method, path;
  std::span<const Field> fields;  // of the body; none for GET
  std::string_view doc;
  bool open = false;  // no key is asked for
};
std::vector<RouteInfo> routes();

class Api {
 public:
  explicit Api(ApiOptions options) : options_(std::move(options)) {}

  // The model is warm. |model| must outlive the Api.
  void serve(const ServedModel& model);
  // Nothing new is taken from here on.
  void drain();
  void set_http_counters(std::function<HttpCounters()> counters);

  // Answers |exchange|, now or later. Never throws.
  void handle(const std::shared_ptr<Exchange>& exchange);

 private:
  friend struct Handlers;
  const ServedModel& ready_model() const;  // or ApiError(503)

  const ApiOptions options_;
  std::atomic<const ServedModel*> model_{nullptr};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::function<HttpCounters()> http_counters_;
};

}  // namespace spyre::server
