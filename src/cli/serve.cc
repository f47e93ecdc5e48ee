// spyre serve: the OpenAI-compatible server.
//
// The port listens at once, so that an orchestrator sees 503 and no refused
// connection while the model is loaded and warmed up. SIGTERM and SIGINT stop
// taking requests and let those that run go on for a while; a second one ends
// the process at once. SIGUSR1 writes the flight recorder's steps to a file.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/trace_file.h"
#include "engine/async_engine.h"
#include "engine/flight_file.h"
#include "server/api.h"
#include "server/auth.h"
#include "server/file_limit.h"
#include "server/http_server.h"
#include "text/chat_template.h"

namespace spyre::cli {
namespace {

struct ServeOptions {
  ModelOptions model;
  server::HttpOptions http{.port = 8000};
  std::vector<std::string> names, keys;
  std::string key_file, flight_dir = ".", trace, generation_config = "auto";
  bool no_prefix_caching = false, no_guard = false;
  int64_t max_queue = 1024, max_logprobs = 20, max_choices = 128, max_body_mib = 16;
  double max_token_gap_ms = 200, drain_seconds = 30, hang_seconds = 60;
};

// The model with what stands on it, in the order in which they need each other.
struct Served {
  OpenModel open;
  std::unique_ptr<TraceFile> trace;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::vector<std::string> specials;
  std::unique_ptr<engine::AsyncEngine> engine;
  server::ServedModel model;
};

// Takes the signals of the process on a thread of its own. Made before any
// other thread, so that all of them block these signals.
class Signals {
 public:
  explicit Signals(std::string flight_dir) : flight_dir_(std::move(flight_dir)) {
    sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this] { run(); });
  }
  ~Signals() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The engine whose steps SIGUSR1 writes, while the object lives.
  class Watch {
   public:
    Watch(Signals& signals, engine::AsyncEngine& engine) : signals_(signals) { signals_.set_engine(&engine); }
    ~Watch() { signals_.set_engine(nullptr); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Signals& signals_;
  };
  // Until the first signal to stop.
  void wait() {
    std::unique_lock lock(mutex_);
    stopped_.wait(lock, [] { return interrupted.load(); });
  }

 private:
  void set_engine(engine::AsyncEngine* engine) {
    const std::lock_guard lock(mutex_);
    engine_ = engine;
  }
  void run() {
    for (;;) {
      int number = 0;
      if (sigwait(&set_, &number) != 0) continue;
      if (done_) return;
      if (number == SIGUSR1) {
        dump();
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (interrupted.exchange(true)) _exit(128 + number);
      stopped_.notify_all();
    }
  }
  void dump() {
    const std::lock_guard lock(mutex_);
    if (!engine_) return;
    const std::string path =
        (std::filesystem::path(flight_dir_) / fmt::format("spyre-flight-{}-{}.json", getpid(), ++dumps_)).string();
    try {
      engine_->dump(path);
      log().warn("wrote the last steps to {}", path);
    } catch (const Error& error) {
      log().error("{}", error.what());
    }
  }

  const std::string flight_dir_;
  sigset_t set_{};
  std::mutex mutex_;
  std::condition_variable stopped_;
  engine::AsyncEngine* engine_ = nullptr;
  int dumps_ = 0;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

std::vector<std::string> api_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.keys;
  if (!options.key_file.empty()) {
    for (std::string& key : server::read_key_file(options.key_file)) keys.push_back(std::move(key));
  }
  for (const char* variable : {"SPYRE_API_KEY", "VLLM_API_KEY"}) {
    const char* key = std::getenv(variable);
    if (keys.empty() && key && *key) keys.emplace_back(key);
  }
  for (const std::string& key : keys) {
    if (key.empty()) throw UsageError("--api-key: a key is empty");
  }
  return keys;
}

std::optional<text::ChatTemplate> open_chat_template(const formats::Checkpoint& checkpoint) {
  try {
    return checkpoint.gguf() ? text::load_chat_template(*checkpoint.gguf())
                             : text::load_chat_template(checkpoint.folder());
  } catch (const Error& error) {
    log().warn("there is no chat: {}", error.what());
    return std::nullopt;
  }
}

server::ChatPromptIds encode_chat(const Served& served, bool guard, const server::ChatArguments& arguments) {
  const text::ChatPrompt prompt =
      served.chat_template->render(arguments.messages, arguments.tools, arguments.kwargs, served.specials,
                                   {.add_generation_prompt = arguments.add_generation_prompt,
                                    .continue_final_message = arguments.continue_final_message,
                                    .guard_special = guard});
  server::ChatPromptIds out{.ids = text::encode(*served.tokenizer, prompt), .text = prompt.text()};
  const auto bos = served.tokenizer->bos_id();
  if (arguments.add_special_tokens && bos && (out.ids.empty() || out.ids.front() != *bos))
    out.ids.insert(out.ids.begin(), *bos);
  return out;
}

void describe(const ServeOptions& options, Served& served) {
  const platform::EngineConfig& config = served.open.instance.config;
  server::ServedModel& model = served.model;
  model.names = options.names;
  if (model.names.empty()) model.names.push_back(options.model.model);
  model.root = options.model.model;
  model.created = static_cast<int64_t>(std::time(nullptr));
  model.engine = served.engine.get();
  model.tokenizer = served.tokenizer ? &*served.tokenizer : nullptr;
  if (served.tokenizer && served.chat_template) {
    model.chat = [&served, guard = !options.no_guard](const server::ChatArguments& arguments) {
      return encode_chat(served, guard, arguments);
    };
  }
  model.eos_token_ids = text::eos_token_ids(*served.open.instance.checkpoint, served.tokenizer);
  if (options.generation_config == "auto") {
    model.defaults = formats::read_generation_defaults(*served.open.instance.checkpoint);
    if (const std::string given = model.defaults.to_string(); !given.empty())
      std::fprintf(stderr, "spyre: requests that ask for nothing else have the model's defaults: %s\n", given.c_str());
  }
  model.version["platform"] = config.platform;
  if (config.dtype) model.version["dtype"] = std::string(to_string(*config.dtype));
  model.version["order"] = config.order;
  model.version["kernels"] = to_string(CpuFeatures::capped_by_environment());
  const engine::EngineLimits limits = served.engine->limits();
  model.limits.vocab_size = limits.vocab_size;
  model.limits.max_model_len = limits.max_model_len;
  model.limits.max_logprobs = options.max_logprobs < 0 ? limits.vocab_size : options.max_logprobs;
  model.limits.max_choices = options.max_choices;
}

void open_served(const ServeOptions& options, Served& served) {
  platform::EngineConfig config = options.model.config();
  config.serving = true;
  served.open = open_model(config, true, Texts::kTokenizer);
  std::fprintf(stderr, "spyre: KV cache: %s\n", served.open.instance.kv_cache.c_str());
  const formats::Checkpoint& checkpoint = *served.open.instance.checkpoint;
  served.tokenizer = served.open.tokenizer.get();
  if (served.tokenizer) {
    served.chat_template = open_chat_template(checkpoint);
    served.specials = text::special_texts(*served.tokenizer);
  }
  if (interrupted) throw_error(ErrorCode::kCancelled, "interrupted while starting");
  served.trace = std::make_unique<TraceFile>(options.trace, *served.open.instance.worker);
  engine::AsyncEngineOptions engine;
  engine.engine.num_blocks = served.open.instance.num_kv_blocks;
  engine.engine.prefix_caching = !options.no_prefix_caching;
  engine.engine.max_token_gap = options.max_token_gap_ms / 1000;
  engine.engine.max_queue = options.max_queue;
  engine.engine.origin = engine::origin_of(served.open.instance.config, served.open.instance.num_kv_blocks);
  engine.engine.tokenizer = served.tokenizer ? &*served.tokenizer : nullptr;
  engine.hang_seconds = options.hang_seconds;
  engine.fault_file = std::filesystem::path(options.flight_dir) / fmt::format("spyre-fault-{}.json", getpid());
  served.engine = std::make_unique<engine::AsyncEngine>(*served.open.instance.worker, std::move(engine));
  describe(options, served);
}

void say_ready(const ServeOptions& options, const Served& served, uint16_t port) {
  const bool v6 = options.http.host.find(':') != std::string::npos;
  const engine::EngineLimits limits = served.engine->limits();
  write_out(
      fmt::format("spyre: ready: {} at http://{}{}{}:{} (platform {}, context {}, {} "
                  "sequences, {} KV blocks, token gap {} ms)\n",
                  served.model.names.front(), v6 ? "[" : "", options.http.host, v6 ? "]" : "", port,
                  served.open.instance.config.platform, limits.max_model_len, limits.max_num_seqs,
                  served.open.instance.num_kv_blocks, options.max_token_gap_ms));
}

void check_options(const ServeOptions& options) {
  for (const std::string& name : options.names) {
    if (name.empty()) throw UsageError("--served-model-name: a name is empty");
  }
  if (!std::filesystem::is_directory(options.flight_dir))  // now, and not when a step has failed
    throw UsageError(fmt::format("--flight-dir: '{}' is no folder", options.flight_dir));
}

void run_serve(const ServeOptions& options) {
  check_options(options);
  Signals signals(options.flight_dir);
  server::raise_file_limit();
  Served served;  // before the server: its threads end first
  server::Api api({.keys = api_keys(options), .json = {}});
  server::HttpOptions http = options.http;
  http.limits.max_body_bytes = static_cast<uint64_t>(options.max_body_mib) << 20;
  http.limits.max_bodies_bytes = std::max(http.limits.max_bodies_bytes, 4 * http.limits.max_body_bytes);
  server::HttpServer server(http, [&api](std::shared_ptr<server::Exchange> exchange) { api.handle(exchange); });
  api.set_http_counters([&server] { return server.counters(); });

  open_served(options, served);
  const Signals::Watch watch(signals, *served.engine);
  api.serve(served.model);
  say_ready(options, served, server.port());
  signals.wait();

  log().info("shutting down: what runs may go on for {} s", options.drain_seconds);
  api.drain();
  served.engine->shut_down(options.drain_seconds);
  served.trace->finish();
  server.wait_idle(std::chrono::seconds(5));  // the last bytes
  server.stop();
}

void add_limits(CLI::App& command, ServeOptions& o) {
  const char* group = "Serving limits";
  const auto count = [&](const char* flag, auto& value, const char* help, int64_t min = 1) {
    command.add_option(flag, value, help)
        ->capture_default_str()
        ->check(CLI::Range(min, int64_t{1} << 40))
        ->type_name("N")
        ->group(group);
  };
  count("--max-queue", o.max_queue, "Requests that may wait; more are refused with 429");
  count("--max-logprobs", o.max_logprobs, "Most entries per token in logprobs; -1: the whole vocabulary", -1);
  count("--max-choices", o.max_choices, "Largest n of a request");
  count("--max-body-mib", o.max_body_mib, "Longest body of a request, in MiB");
  count("--max-connections", o.http.limits.max_connections, "Open connections; more are refused with 503");
  const auto time = [&](const char* flag, double& value, const char* help, const char* unit) {
    command.add_option(flag, value, help)
        ->capture_default_str()
        ->check(CLI::Range(0.0, 1e6))
        ->check([](const std::string& text) {  // which lets NaN pass
          return std::isnan(std::strtod(text.c_str(), nullptr)) ? std::string("must be a number") : std::string();
        })
        ->type_name(unit)
        ->group(group);
  };
  time("--max-token-gap-ms", o.max_token_gap_ms,
       "Longest pause between two tokens of a stream that a long prompt beside "
       "it may cause",
       "MS");
  time("--drain-seconds", o.drain_seconds, "After SIGTERM: time for what runs", "S");
  time("--hang-seconds", o.hang_seconds, "A step that runs longer makes /health 503", "S");
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "An OpenAI-compatible server: completions, chat, metrics");
  auto options = std::make_shared<ServeOptions>();
  ServeOptions& o = *options;
  o.model.add_to(*command);
  const char* group = "Server";
  command->add_option("--host", o.http.host, "Address to listen at; 0.0.0.0: every interface")
      ->capture_default_str()
      ->group(group);
  command->add_option("--port", o.http.port, "Port; 0: any that is free, told in the line that says ready")
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--served-model-name", o.names,
                   "Names of the model in requests; the first stands in answers [MODEL]")
      ->type_name("NAME...")
      ->group(group);
  command
      ->add_option("--generation-config", o.generation_config,
                   "auto: a request that gives no temperature, top_p, top_k, min_p or repetition_penalty, and a chat "
                   "that gives no max_tokens, has those of the model's generation_config.json; vllm: neutral ones")
      ->check(CLI::IsMember({"auto", "vllm"}))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--api-key", o.keys,
                   "Keys that clients must show, on all paths but /health and "
                   "/ping [SPYRE_API_KEY]")
      ->type_name("KEY...")
      ->group(group);
  command->add_option("--api-key-file", o.key_file, "A file with one key a line")->type_name("FILE")->group(group);
  command
      ->add_option("--flight-dir", o.flight_dir,
                   "Where SIGUSR1 and a failing step write the last steps, for "
                   "spyre replay")
      ->capture_default_str()
      ->type_name("DIR")
      ->group(group);
  command->add_flag("--no-enable-prefix-caching", o.no_prefix_caching, "Compute every prompt from its beginning")
      ->group(group);
  command->add_flag("--no-guard-special-tokens", o.no_guard, "Read special tokens in what chat users write")
      ->group(group);
  add_trace_flag(*command, o.trace);
  add_limits(*command, o);
  command->final_callback([options] { run_serve(*options); });
}

}  // namespace spyre::cli
