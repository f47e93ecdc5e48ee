#include "server/api.h"

#include <algorithm>

#include "base/build_id.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/auth.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/metrics.h"
#include "server/openapi.h"

namespace spyre::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

constexpr std::string_view kModelsPath = "/v1/models/";

void respond_json(const ExchangePtr& exchange, const Json& body) {
  exchange->respond({.body = dump(body)});
}

Json model_card(const ServedModel& model, const std::string& name) {
  Json card;
  card["id"] = name;
  card["object"] = "model";
  card["created"] = model.created;
  card["owned_by"] = "spyre";
  card["root"] = model.root;
  card["parent"] = nullptr;
  card["max_model_len"] = model.limits.max_model_len;
  return card;
}

Json token_strings(const TokenText& text, const std::vector<int32_t>& ids) {
  Json out = Json::array();
  for (const int32_t id : ids) out.push_back(text.text(id));
  return out;
}

const text::Tokenizer& tokenizer_of(const ServedModel& model) {
  if (!model.tokenizer) throw ApiError(400, "this model has no tokenizer");
  return *model.tokenizer;
}

}  // namespace

// The handlers: each answers one route, or throws.
struct Handlers {
  static void health(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    switch (model.engine->health()) {
      case engine::EngineHealth::kReady:
        return exchange->respond({.content_type = "text/plain"});
      case engine::EngineHealth::kHung:
        throw ApiError(503, "a step of the engine hangs");
      case engine::EngineHealth::kDraining:
        throw ApiError(503, "the server is shutting down");
      case engine::EngineHealth::kDead:
        throw ApiError(503, "the engine is dead");
    }
  }

  static void metrics(Api& api, const ExchangePtr& exchange) {
    const ServedModel* model = api.model_;
    HttpCounters http;
    {
      const std::lock_guard lock(api.mutex_);
      if (api.http_counters_) http = api.http_counters_();
    }
    exchange->respond({.content_type = kMetricsContentType,
                       .body = metrics_page(model ? model->engine->stats() : engine::EngineStats(), http,
                                            model ? std::string_view(model->names.front()) : std::string_view())});
  }

  static void version(Api& api, const ExchangePtr& exchange) {
    Json out;
    const std::string_view build = build_id();
    out["version"] = build.substr(0, build.find('-'));
    out["build_id"] = build;
    if (const ServedModel* model = api.model_; model && model->version.is_object()) out.update(model->version);
    respond_json(exchange, out);
  }

  static void openapi(Api&, const ExchangePtr& exchange) { exchange->respond({.body = openapi_json()}); }

  static void models(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    Json out;
    out["object"] = "list";
    out["data"] = Json::array();
    for (const std::string& name : model.names) out["data"].push_back(model_card(model, name));
    respond_json(exchange, out);
  }

  static void model(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    const std::string name = exchange->request().path.substr(kModelsPath.size());
    if (std::find(model.names.begin(), model.names.end(), name) == model.names.end()) {
      throw ApiError(404, fmt::format("The model `{}` does not exist.", quotable(name)), "model");
    }
    respond_json(exchange, model_card(model, name));
  }

  static Json body(Api& api, const ExchangePtr& exchange) {
    return parse_json(exchange->take_body(), api.options_.json);
  }

  static void completions(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    start_generation(exchange, model, plan_completion(body(api, exchange), model));
  }

  static void chat(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    start_generation(exchange, model, plan_chat(body(api, exchange), model));
  }

  static void tokenize(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    const Json json = body(api, exchange);
    check_fields(json, tokenize_fields(), model.limits);
    const Body body(json);
    check_model_name(body, model);
    const auto prompt = body.string("prompt");
    if (prompt.has_value() == (body.find("messages") != nullptr))
      bad_field("prompt", "give prompt or messages, one of them");
    std::vector<int32_t> ids;
    if (prompt) {
      try {
        ids = tokenizer_of(model).encode(*prompt,
                                         {.add_special = body.flag("add_special_tokens", true), .parse_special = true});
      } catch (const Error& error) {
        bad_field("prompt", "{}", error.what());
      }
    } else {
      ids = read_conversation(body, model).ids;
    }
    Json out;
    out["count"] = ids.size();
    out["max_model_len"] = model.limits.max_model_len;
    out["token_strs"] =
        body.flag("return_token_strs", false) ? token_strings(TokenText(model.tokenizer, false), ids) : Json(nullptr);
    out["tokens"] = std::move(ids);
    respond_json(exchange, out);
  }

  static void detokenize(Api& api, const ExchangePtr& exchange) {
    const ServedModel& model = api.ready_model();
    const Json json = body(api, exchange);
    check_fields(json, detokenize_fields(), model.limits);
    const Body body(json);
    check_model_name(body, model);
    if (!body.find("tokens")) bad_field("tokens", "is required");
    Json out;
    out["prompt"] = tokenizer_of(model).decode(body.ids("tokens"), false);
    respond_json(exchange, out);
  }
};

namespace {

struct Route {
  RouteInfo info;
  void (*handle)(Api&, const ExchangePtr&);
};

const std::vector<Route>& route_table() {
  static const std::vector<Route> table = {
      {{"POST", "/v1/completions", completion_fields(), "Continues a prompt."}, Handlers::completions},
      {{"POST", "/v1/chat/completions", chat_fields(), "Answers a conversation."}, Handlers::chat},
      {{"GET", "/v1/models", {}, "The names of the served model."}, Handlers::models},
      {{"GET", "/v1/models/{model}", {}, "One of them."}, Handlers::model},
      {{"POST", "/tokenize", tokenize_fields(), "The token ids of a text or a conversation."}, Handlers::tokenize},
      {{"POST", "/detokenize", detokenize_fields(), "The text of token ids."}, Handlers::detokenize},
      {{"GET",
        "/health",
        {},
        "200 when requests are served; 503 while warming up, shutting down, or when the engine hangs or is dead.",
        true},
       Handlers::health},
      {{"GET", "/ping", {}, "The same.", true}, Handlers::health},
      {{"GET", "/metrics", {}, "Prometheus' text format, vLLM's names."}, Handlers::metrics},
      {{"GET", "/version", {}, "Version, build, platform, kernels, order of summation."}, Handlers::version},
      {{"GET", "/openapi.json", {}, "This interface as an OpenAPI document."}, Handlers::openapi},
  };
  return table;
}

bool matches(const Route& route, std::string_view path) {
  const size_t brace = route.info.path.find('{');
  if (brace == std::string_view::npos) return route.info.path == path;
  return path.size() > brace && path.substr(0, brace) == route.info.path.substr(0, brace);
}

class WrongMethod : public ApiError {
 public:
  WrongMethod(const HttpRequest& request, const Route& route)
      : ApiError(405, fmt::format("{} takes {}, not {}", quotable(request.path), route.info.method,
                                  quotable(request.method, 20))),
        allowed(route.info.method) {}
  const std::string allowed;
};

// The route of a request. A path nobody knows is a 404, a method it does not have a 405.
const Route& find_route(const HttpRequest& request) {
  const Route* same_path = nullptr;
  for (const Route& route : route_table()) {
    if (!matches(route, request.path)) continue;
    if (route.info.method == request.method) return route;
    same_path = &route;
  }
  if (!same_path) throw ApiError(404, fmt::format("there is no {}", quotable(request.path)));
  throw WrongMethod(request, *same_path);
}

}  // namespace

std::vector<RouteInfo> routes() {
  std::vector<RouteInfo> out;
  for (const Route& route : route_table()) out.push_back(route.info);
  return out;
}

void Api::serve(const ServedModel& model) {
  model_ = &model;
}

void Api::drain() {
  draining_ = true;
}

void Api::set_http_counters(std::function<HttpCounters()> counters) {
  const std::lock_guard lock(mutex_);
  http_counters_ = std::move(counters);
}

const ServedModel& Api::ready_model() const {
  if (draining_) throw ApiError(503, "the server is shutting down");
  const ServedModel* model = model_;
  if (!model) throw ApiError(503, "the model is still being loaded and warmed up; try again later");
  return *model;
}

void Api::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const auto fail = [&](const ApiError& error, const Headers& headers = {}) {
    log().info("{} {}: {} {}", quotable(request.method, 20), quotable(request.path), error.status(),
               quotable(error.what(), 300));
    HttpResponse response = error_response(error);
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    exchange->respond(std::move(response));
  };
  try {
    const bool open = std::any_of(route_table().begin(), route_table().end(),
                                  [&](const Route& r) { return r.info.open && matches(r, request.path); });
    if (!open && !authorized(request.authorization, options_.keys))
      throw ApiError(401, "the API key is missing or wrong");
    find_route(request).handle(*this, exchange);
  } catch (const WrongMethod& error) {
    fail(error, {{"Allow", error.allowed}});
  } catch (const ApiError& error) {
    fail(error);
  } catch (const Error& error) {
    fail(to_api_error(error));
  } catch (const std::bad_alloc&) {
    fail(ApiError(503, "out of memory"));
  } catch (const std::exception& error) {
    fail(ApiError(500, error.what()));
  }
}

}  // namespace spyre::server
