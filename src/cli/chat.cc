// spyre chat: a conversation at the terminal, or line by line from a pipe.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "engine/generate.h"
#include "runner/sampler.h"
#include "text/chat_template.h"

namespace spyre::cli {
namespace {

constexpr size_t kLineLimit = size_t{4} << 20;      // bytes of one line, as much as a tokenizer takes
constexpr size_t kTemplateLimit = size_t{1} << 20;  // bytes of --chat-template
constexpr int64_t kToTheEnd = -1;                   // --max-tokens: as far as the context goes

struct ChatCommandOptions {
  ModelOptions model;
  std::string system, template_file;
  runner::SamplingParams sampling{.temperature = 0, .max_tokens = kToTheEnd};
};

// Lines of stdin. Waits in short pieces, so that Ctrl-C at the prompt comes back to us whenever it is pressed.
class Lines {
 public:
  // Nothing at the end of the input, or when Ctrl-C was pressed (then |interrupted| is set).
  std::optional<std::string> next() {
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (buffer_.size() > kLineLimit) {
        throw_error(ErrorCode::kInvalidArgument, "a line of more than {} bytes", kLineLimit);
      }
      if (!wait()) return std::nullopt;
      char chunk[4096];
      const ssize_t got = read(STDIN_FILENO, chunk, sizeof(chunk));
      if (got > 0) {
        buffer_.append(chunk, static_cast<size_t>(got));
      } else if (got == 0) {
        if (buffer_.empty()) return std::nullopt;
        return std::exchange(buffer_, {});
      } else if (errno != EINTR) {
        throw_error(ErrorCode::kUnavailable, "cannot read the input: {}", std::strerror(errno));
      }
    }
  }

 private:
  // False when Ctrl-C was pressed meanwhile.
  static bool wait() {
    const bool before = interrupted;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    constexpr int kPiece = 100;  // milliseconds
    while (poll(&input, 1, kPiece) == 0 || input.revents == 0) {
      if (interrupted && !before) return false;
    }
    return true;
  }

  std::string buffer_;
};

text::ChatTemplate open_template(const ChatCommandOptions& options, const formats::Checkpoint& checkpoint,
                                 const text::Tokenizer& tokenizer) {
  if (!options.template_file.empty()) {
    const std::string source = read_file(options.template_file, kTemplateLimit);
    const std::string bos = tokenizer.bos_id() ? tokenizer.token_bytes(*tokenizer.bos_id()) : "";
    const std::string eos = tokenizer.eos_ids().empty() ? "" : tokenizer.token_bytes(tokenizer.eos_ids().front());
    return text::ChatTemplate(source, bos, eos);
  }
  auto found =
      checkpoint.gguf() ? text::load_chat_template(*checkpoint.gguf()) : text::load_chat_template(checkpoint.folder());
  if (!found) {
    throw_error(
        ErrorCode::kNotFound,
        "the model has no chat template: give one with --chat-template, or continue a text with spyre generate");
  }
  return std::move(*found);
}

// A model that answers conversations. What an earlier turn computed is found in the prefix cache.
class Model {
 public:
  explicit Model(const ChatCommandOptions& options)
      : options_(options),
        open_(open_model(options.model.config(), /*progress=*/true, Texts::kTokenizer)),
        tokenizer_(open_.tokenizer.get()) {
    if (!tokenizer_) throw_error(ErrorCode::kNotFound, "the model has no tokenizer.json: it cannot chat");
    template_.emplace(open_template(options, *open_.instance.checkpoint, *tokenizer_));
    specials_ = text::special_texts(*tokenizer_);
    engine_ = std::make_unique<engine::Engine>(
        *open_.instance.worker,
        engine::EngineOptions{.num_blocks = open_.instance.num_kv_blocks, .tokenizer = &*tokenizer_});
  }

  ChatReply answer(const ChatSession::Messages& messages) {
    const auto prompt = template_->render(messages, nullptr, nullptr, specials_, {});
    engine::Request request{.prompt_ids = text::encode(*tokenizer_, prompt), .sampling = options_.sampling};
    const int64_t limit = engine_->limits().max_model_len;
    const auto used = static_cast<int64_t>(request.prompt_ids.size());
    if (used >= limit) {
      throw_error(
          ErrorCode::kInvalidArgument,
          "the conversation has {} tokens, and the context of {} has no room for an answer: /reset begins a new "
          "one (--max-model-len sets the context)",
          used, limit);
    }
    int64_t& most = request.sampling.max_tokens;
    most = most == kToTheEnd ? limit - used : std::min(most, limit - used);
    request.sampling.eos_token_ids = text::eos_token_ids(*open_.instance.checkpoint, tokenizer_);
    const engine::GenerateResult result = engine::generate(
        *engine_, std::move(request), [](const engine::OutputDelta& delta) { write_out(delta.text); }, &interrupted);
    write_out("\n");
    if (result.finish_reason == engine::FinishReason::kError) throw_error(ErrorCode::kUnsupported, "{}", result.error);
    return {.text = result.text,
            .stopped = result.finish_reason == engine::FinishReason::kAbort,
            .cut = result.finish_reason == engine::FinishReason::kLength};
  }

 private:
  const ChatCommandOptions& options_;
  OpenModel open_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  std::vector<std::string> specials_;
  std::unique_ptr<engine::Engine> engine_;
};

// At a terminal an error ends its turn, and Ctrl-C an answer.
void converse(ChatSession& session) {
  Lines lines;
  write_out("/help lists the commands.\n");
  for (bool warned = false;;) {
    write_out("> ");
    const auto line = lines.next();
    if (!line && interrupted && !warned) {
      write_out("\nCtrl-C again or Ctrl-D to leave.\n");
      warned = true;  // and |interrupted| stays set: the next Ctrl-C ends the process
      continue;
    }
    if (!line) break;
    warned = false;
    interrupted = false;
    try {
      if (!session.take(*line)) return;
    } catch (const Error& error) {
      std::fprintf(stderr, "spyre: %s\n", error.what());
    }
    interrupted = false;
  }
  write_out("\n");
}

// From a pipe: an answer for each line, nothing else on stdout. A line that is not text is left out, and said so.
void answer_lines(ChatSession& session) {
  Lines lines;
  int64_t number = 0, left_out = 0;
  while (!interrupted) {
    const auto line = lines.next();
    if (!line) break;
    ++number;
    try {
      if (!session.take(*line)) break;
    } catch (const NotText& error) {
      ++left_out;
      std::fprintf(stderr, "spyre: line %lld is left out: %s\n", static_cast<long long>(number), error.what());
    }
  }
  if (interrupted) throw_error(ErrorCode::kCancelled, "interrupted");
  if (left_out > 0) {
    throw_error(ErrorCode::kInvalidArgument, "{} of {} lines were left out: they are not UTF-8", left_out, number);
  }
}

void run_chat(const ChatCommandOptions& options) {
  try {
    runner::SamplingParams sampling = options.sampling;
    sampling.max_tokens = std::max<int64_t>(sampling.max_tokens, 1);
    if (options.sampling.max_tokens != kToTheEnd && options.sampling.max_tokens < 1) {
      throw_error(ErrorCode::kInvalidArgument, "--max-tokens is {}; an answer has at least 1",
                  options.sampling.max_tokens);
    }
    runner::validate(sampling, std::numeric_limits<int32_t>::max());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  Model model(options);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  ChatSession session([&](const ChatSession::Messages& messages) { return model.answer(messages); },
                      [&](std::string_view line) {
                        std::fprintf(terminal ? stdout : stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
                      });
  session.set_system(options.system);
  if (terminal) {
    converse(session);
  } else {
    answer_lines(session);
  }
}

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  auto options = std::make_shared<ChatCommandOptions>();
  const char* group = "Conversation";
  command->add_option("--system", options->system, "Instructions that stand before the conversation")
      ->type_name("TEXT")
      ->group(group);
  command
      ->add_option("--chat-template", options->template_file,
                   "A file with a Jinja template to use instead of the model's own")
      ->type_name("FILE")
      ->group(group);
  add_sampling(*command, options->sampling);
  if (auto* most = command->get_option("--max-tokens")) {
    most->default_str("to the end of the context")->description("Tokens of an answer at most");
  }
  options->model.add_to(*command);
  command->footer(
      "Each line is answered; what was said before is kept. At a terminal: Ctrl-C stops an answer and keeps what was\n"
      "said, a second one or Ctrl-D ends; /reset forgets the conversation, /system TEXT sets the instructions, /help.\n"
      "From a pipe: one answer per line of input, and nothing else on stdout.\n"
      "Examples:\n"
      "  spyre chat MODEL\n"
      "  spyre chat MODEL --system 'Answer in one sentence.' --temperature 0.7 --top-p 0.9\n"
      "  echo 'What is the capital of France?' | spyre chat MODEL");
  command->final_callback([options] { run_chat(*options); });
}

}  // namespace spyre::cli
