#include "cli/sizing.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "formats/checkpoint.h"
#include "formats/json.h"
#include "platform/sizing.h"

namespace spyre::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string bytes_text(int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (gib >= 0.1) return fmt::format("{:.2f} GiB", gib);
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 0.1 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{} bytes", bytes);
}

std::string count_text(int64_t count) {
  const auto n = static_cast<double>(count);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.2f} M", n / 1e6);
  return fmt::format("{}", count);
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

// "mlp 6.29 B, attention 1.68 B": what is there.
std::string list_parts(const json& parts, std::string (*text)(int64_t)) {
  std::string out;
  for (const auto& [name, value] : parts.items()) {
    if (name == "total" || name == "active" || value == 0) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, text(value.get<int64_t>()));
  }
  return out;
}

std::string head_text(const json& a) {
  const json &m = a["model"], &q = a["question"], &p = a["parameters"];
  std::string out =
      fmt::format("{} {}: {} layers of {}, {} heads and {} KV heads of {}, MLP {}, vocabulary {}\n",
                  m["family"].get<std::string>(), m["kind"].get<std::string>(), m["layers"].get<int64_t>(),
                  m["hidden"].get<int64_t>(), m["heads"].get<int64_t>(), m["kv_heads"].get<int64_t>(),
                  m["head_size"].get<int64_t>(), m["mlp"].get<int64_t>(), m["vocabulary"].get<int64_t>());
  out += fmt::format("asked: {} {} of {} tokens on {} card{}\n", q["batch"].get<int64_t>(),
                     m["kind"] == "encoder" ? "texts" : "sequences", q["context"].get<int64_t>(),
                     q["cards"].get<int64_t>(), q["cards"] == 1 ? "" : "s");
  out += fmt::format("parameters: {} ({})\n", count_text(p["total"].get<int64_t>()), list_parts(p, count_text));
  if (p["active"] != p["total"])
    out += fmt::format("  of which a token meets {}\n", count_text(p["active"].get<int64_t>()));
  return out;
}

std::string card_text(const json& a) {
  const json& c = a["card"];
  const std::string each = a["question"]["cards"] == 1 ? "on the card" : "on each card";
  std::string out = fmt::format("\n{}, with its padding:\n", each);
  out += fmt::format("  weights       {:>12}  ({})\n", bytes_text(c["weight_bytes"].get<int64_t>()),
                     list_parts(c["weight_bytes_by_kind"], bytes_text));
  if (c["kv_blocks"] != 0) {
    out += fmt::format("  KV cache      {:>12}  ({} blocks of {} tokens, {} bytes a token)\n",
                       bytes_text(c["kv_bytes"].get<int64_t>()), c["kv_blocks"].get<int64_t>(),
                       a["question"]["block_size"].get<int64_t>(), c["kv_bytes_per_token"].get<int64_t>());
  }
  out += fmt::format("  intermediates {:>12}\n", bytes_text(c["pool_bytes"].get<int64_t>()));
  return out + fmt::format("  all           {:>12}\n", bytes_text(c["total_bytes"].get<int64_t>()));
}

std::string limits_text(const json& a) {
  std::string out = fmt::format("\n{}\n", a["fits"].get<bool>() ? "It fits." : "It does not fit.");
  for (const json& l : a["limits"]) {
    const bool bytes = l["unit"] == "bytes";
    const auto amount = [&](const char* key) {
      const auto n = l[key].get<int64_t>();
      return bytes ? bytes_text(n) : fmt::format("{} {}", n, l["unit"].get<std::string>());
    };
    out += fmt::format("  {} {:<14} {:>16} of {:<16} ({}: {})\n", l["met"].get<bool>() ? "  " : "NO",
                       l["name"].get<std::string>(), amount("used"), amount("limit"),
                       l["confidence"].get<std::string>(), l["why"].get<std::string>());
  }
  return out;
}

std::string step_text(const char* what, const json& step) {
  return fmt::format(
      "  {:<28} {:>12}  (body {}, attention {}, head {}, between cards {}, host {})\n", what,
      seconds_text(step["seconds"].get<double>()), seconds_text(step["body_seconds"].get<double>()),
      seconds_text(step["attention_seconds"].get<double>()), seconds_text(step["head_seconds"].get<double>()),
      seconds_text(step["between_cards_seconds"].get<double>()), seconds_text(step["host_seconds"].get<double>()));
}

std::string time_text(const json& a) {
  std::string out = fmt::format("\ntimes, by {} (docs/cost.md):\n", a["source"].get<std::string>());
  const json& q = a["question"];
  for (const char* config : {"measured", "spec"}) {
    const json& t = a["time"][config];
    out += fmt::format(" {}:\n", config);
    if (a["model"]["kind"] == "encoder") {
      out += step_text("the batch", t["batch"]);
      out += fmt::format("  {:<28} {:>12.0f}  ({:.0f} tokens/s)\n", "texts a second",
                         t["texts_per_second"].get<double>(), t["tokens_per_second"].get<double>());
      continue;
    }
    out += step_text(fmt::format("a prompt of {}", q["prompt"].get<int64_t>()).c_str(), t["prompt"]);
    out += step_text("a step of decode, halfway", t["decode"]);
    out += step_text(fmt::format("  and at {} tokens", q["context"].get<int64_t>()).c_str(), t["decode_at_end"]);
    out += fmt::format("  {:<28} {:>12}  (SPYRE_ATTN_KV_LAYOUT=head_major)\n", "    with pages head by head",
                       seconds_text(t["head_major_decode_at_end_seconds"].get<double>()));
    out += fmt::format("  {:<28} {:>12.0f}  ({:.1f} a sequence; {:.0f} at {} tokens; {:.0f} with the prompts' time)\n",
                       "tokens a second", t["decode_tokens_per_second"].get<double>(),
                       t["decode_tokens_per_second_per_sequence"].get<double>(),
                       t["decode_tokens_per_second_at_end"].get<double>(), q["context"].get<int64_t>(),
                       t["answer_tokens_per_second_with_prompts"].get<double>());
  }
  return out;
}

std::string lines_text(const char* title, const json& lines) {
  if (lines.empty()) return "";
  std::string out = fmt::format("\n{}:\n", title);
  for (const json& line : lines) out += "  - " + line.get<std::string>() + "\n";
  return out;
}

// The configuration of a model, as Hugging Face would have written it. Of a folder whatever its weights are.
json configuration_of(const fs::path& model) {
  std::error_code error;
  const fs::path inside = model / "config.json";
  const fs::path file = fs::is_regular_file(inside, error) ? inside : model;
  if (file.extension() == ".json")
    return formats::parse_json_object(read_file(file, formats::kMaxJsonBytes), file.string());
  return formats::Checkpoint::open(model)->config().raw;
}

}  // namespace

void SizingOptions::add_to(CLI::App& command) {
  const auto number = [&](const char* flag, std::optional<int64_t>& value, const char* help) {
    command.add_option(flag, value, help)
        ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max(), "of at least 1"))
        ->type_name("N")
        ->group("Sizing (from the configuration alone)");
  };
  number("--batch", batch, "Sequences at once [1]");
  number("--context", context, "Longest sequence, prompt and answer together [the model's, at most 8192]");
  number("--prompt", prompt, "Tokens of each prompt [half of the context]");
  number("--cards", cards, "Cards that share the model [1]");
}

bool is_configuration_alone(const fs::path& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error)) return model.extension() == ".json";
  if (!fs::is_regular_file(model / "config.json", error)) return false;
  for (const auto& entry : fs::directory_iterator(model, error)) {
    const fs::path name = entry.path().filename();
    const bool weights = name.extension() == ".safetensors" || name.extension() == ".gguf" ||
                         name == "model.safetensors.index.json" || name == "pytorch_model.bin" ||
                         name == "pytorch_model.bin.index.json";
    if (weights) return false;
  }
  return true;
}

json ask_size(const ModelOptions& model, const SizingOptions& options, bool details) {
  const platform::EngineConfig config = model.config();
  if (config.enforce_eager) throw UsageError("--enforce-eager: sizes are of compiled blocks; leave one of the two out");
  const auto registry = platform::PlatformRegistry::discover(platform::PlatformRegistry::default_manifest_dirs());
  const platform::Platform& platform = registry.get(config.platform);
  platform::SizingQuestion question{.config = configuration_of(config.model), .name = config.model.string()};
  question.batch = options.batch.value_or(1);
  question.context = options.context ? options.context : config.max_model_len;
  question.prompt = options.prompt;
  question.cards = options.cards.value_or(1);
  question.block_size = config.block_size.value_or(question.block_size);
  question.step_tokens = config.max_num_batched_tokens.value_or(question.step_tokens);
  question.details = details;
  json answer = platform.size_model(question);
  if (answer.is_null()) {
    throw_error(ErrorCode::kUnsupported, "the platform {} cannot size a model without its weights", platform.name());
  }
  return answer;
}

std::string sizing_text(const json& a) {
  return head_text(a) + card_text(a) + limits_text(a) + lines_text("to change, and to know", a["advice"]) +
         time_text(a) + lines_text("assumed", a["assumed"]);
}

}  // namespace spyre::cli
