#include "plugins/spyre/sizing/sizing.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plugins/spyre/device/layout.h"
#include "plugins/spyre/device/rules.h"
#include "plugins/spyre/sizing/advice.h"
#include "plugins/spyre/sizing/card_group.h"

namespace spyre::sizing {
namespace {

using device::CostConfig;
using nlohmann::json;
using platform::SizingQuestion;

constexpr int64_t kDefaultContext = 8192;
constexpr double kSecond = 1e9;

void check_range(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    throw_error(ErrorCode::kInvalidArgument, "{} is {}, must be {} to {}", what, value, least, most);
  }
}

// Fills in what is unset; a text of an encoder is as long as its context.
void complete(SizingQuestion& q, const ModelShape& shape) {
  check_range("batch", q.batch, 1, kMostSequences);
  check_range("cards", q.cards, 1, kMostCards);
  check_range("block_size", q.block_size, 64, 65536);
  q.block_size = device::round_up(q.block_size, 64);
  check_range("max_num_batched_tokens", q.step_tokens, 1, int64_t{1} << 20);
  if (!q.context) q.context = std::min(shape.positions, kDefaultContext);
  check_range("context", *q.context, 1, shape.positions);
  if (!q.prompt) q.prompt = shape.encoder ? *q.context : std::max<int64_t>(1, *q.context / 2);
  check_range("prompt", *q.prompt, 1, *q.context);
  if (*q.context > kMostTokens / q.batch) {
    throw_error(ErrorCode::kInvalidArgument, "{} sequences of {} tokens: at most {} tokens are sized", q.batch,
                *q.context, kMostTokens);
  }
  if (shape.encoder) check_range("context", *q.context, 1, 65536);
  if (const std::string why = why_not_divisible(shape, q.cards); !why.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "cards is {}: {}; possible: {}", q.cards, why, possible_cards(shape));
  }
}

json model_json(const ModelShape& s) {
  json out = {{"family", s.family},       {"kind", s.encoder ? "encoder" : "decoder"},
              {"layers", s.layers},       {"hidden", s.hidden},
              {"heads", s.heads},         {"kv_heads", s.kv_heads},
              {"head_size", s.head_size}, {"mlp", s.mlp},
              {"vocabulary", s.vocab},    {"positions", s.positions}};
  if (s.experts > 0) out["experts"] = s.experts;
  return out;
}

json parameters_json(const ModelShape& s) {
  const ParameterCounts c = count_parameters(s);
  return {{"total", c.total()},       {"active", c.active}, {"embedding", c.embedding}, {"positions", c.positions},
          {"attention", c.attention}, {"mlp", c.mlp},       {"norms", c.norms},         {"head", c.head}};
}

json card_json(const ModelShape& s, const CardShare& share, const CardFit& fit) {
  json kinds = json::object();
  for (const CardTensor& t : share.tensors) kinds[t.kind] = kinds.value(t.kind, int64_t{0}) + t.bytes * t.count;
  return {{"heads", share.heads},          {"kv_heads", share.kv_heads},
          {"head_size", share.head_size},  {"mlp_columns", share.mlp},
          {"head_rows", share.vocab_rows}, {"weight_bytes", fit.weight_bytes},
          {"weight_bytes_by_kind", kinds}, {"kv_bytes_per_token", s.encoder ? 0 : share.kv_bytes_per_token(s.layers)},
          {"kv_blocks", fit.kv_blocks},    {"kv_bytes", fit.kv_bytes},
          {"pool_bytes", fit.pool_bytes},  {"total_bytes", fit.weight_bytes + fit.kv_bytes + fit.pool_bytes}};
}

json limits_json(const CardFit& fit) {
  json out = json::array();
  for (const CardLimit& l : fit.limits) {
    out.push_back({{"name", l.name},
                   {"unit", l.unit},
                   {"used", l.used},
                   {"limit", l.limit},
                   {"met", l.met},
                   {"confidence", l.confidence},
                   {"why", l.why}});
  }
  return out;
}

json segments_json(const CardFit& fit) {
  json out = json::array();
  for (const CardSegment& s : fit.segments) out.push_back({{"holds", s.holds}, {"used", s.used}});
  return out;
}

json step_json(const StepTime& t) {
  return {{"seconds", t.ns() / kSecond},
          {"body_seconds", t.body.ns / kSecond},
          {"attention_seconds", t.attention_ns / kSecond},
          {"head_seconds", t.head.ns / kSecond},
          {"between_cards_seconds", t.between_cards_ns / kSecond},
          {"host_seconds", t.host_ns / kSecond},
          {"read_bytes_without_keys", t.body.read_bytes + t.head.read_bytes},
          {"multiply_adds_without_keys", t.body.macs + t.head.macs}};
}

// Of a decoder: reading one prompt; a step of decode in the middle of the answers and at their end.
json decoder_time(CardGroup& group, const CostConfig& config, const SizingQuestion& q) {
  const StepTime prompt = group.prefill(config, *q.prompt);
  const StepTime middle = group.decode(config, q.batch, (*q.prompt + *q.context + 1) / 2);
  const StepTime end = group.decode(config, q.batch, *q.context);
  const auto batch = static_cast<double>(q.batch);
  const auto answer = static_cast<double>(*q.context - *q.prompt);
  const double all = batch * prompt.ns() + answer * middle.ns();
  return {{"prompt", step_json(prompt)},
          {"prompt_tokens_per_second", static_cast<double>(*q.prompt) * kSecond / prompt.ns()},
          {"decode", step_json(middle)},
          {"decode_at_end", step_json(end)},
          {"head_major_decode_at_end_seconds", group.head_major_decode_ns(config, q.batch, *q.context) / kSecond},
          {"decode_tokens_per_second", batch * kSecond / middle.ns()},
          {"decode_tokens_per_second_at_end", batch * kSecond / end.ns()},
          {"decode_tokens_per_second_per_sequence", kSecond / middle.ns()},
          {"answer_tokens_per_second_with_prompts", answer > 0 ? batch * answer * kSecond / all : 0}};
}

json encoder_time(CardGroup& group, const CostConfig& config, const SizingQuestion& q) {
  const StepTime time = group.encode(config, q.batch, *q.context);
  const auto texts = static_cast<double>(q.batch);
  return {{"batch", step_json(time)},
          {"texts_per_second", texts * kSecond / time.ns()},
          {"tokens_per_second", texts * static_cast<double>(*q.context) * kSecond / time.ns()}};
}

constexpr int64_t kTableBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int64_t kTableCards[] = {1, 2, 4, 8, 16};

// Tokens per second and bytes over batch x context, for each number of cards that divides the model.
json tables_json(const platform::Platform& platform, const SizingQuestion& question, const ModelShape& shape) {
  std::vector<int64_t> contexts;
  const int64_t longest = std::min<int64_t>(shape.positions, int64_t{1} << 17);
  for (int64_t c = std::min<int64_t>(256, longest); c < longest; c *= 2) contexts.push_back(c);
  contexts.push_back(longest);
  SizingQuestion q = question;
  q.context = longest;
  json groups = json::array();
  for (const int64_t cards : kTableCards) {
    if (!why_not_divisible(shape, cards).empty()) continue;
    CardGroup group(platform, q, shape, cards);
    json rows = json::array();
    for (const int64_t batch : kTableBatches) {
      for (const int64_t context : contexts) {
        const CardFit fit = group.fit(batch, context);
        json row = {{"batch", batch},
                    {"context", context},
                    {"fits", fit.fits()},
                    {"bytes", fit.weight_bytes + fit.kv_bytes + fit.pool_bytes}};
        for (const CostConfig* config : {&device::measured_costs(), &device::spec_costs()}) {
          const StepTime t =
              shape.encoder ? group.encode(*config, batch, context) : group.decode(*config, batch, context);
          row[std::string(config->name)] = t.ns() / kSecond;
        }
        rows.push_back(std::move(row));
      }
    }
    groups.push_back({{"cards", cards}, {"weight_bytes", group.share().weight_bytes()}, {"rows", std::move(rows)}});
  }
  return groups;
}

// The rules that programs met, with how often.
json rules_json(const json& programs) {
  std::map<std::string, int64_t> met;
  for (const json& program : programs) {
    for (const auto& [number, count] : program["rules"].items()) met[number] += count.get<int64_t>();
  }
  json out = json::array();
  for (const device::RuleInfo& r : device::all_rules()) {
    const auto found = met.find(std::string(r.number));
    if (found == met.end()) continue;
    out.push_back({{"number", r.number}, {"title", r.title}, {"refused", r.refused}, {"met", found->second}});
  }
  return out;
}

json ceilings_json() {
  json out = json::array();
  for (const CostConfig* c : {&device::measured_costs(), &device::spec_costs()}) {
    out.push_back({{"name", c->name}, {"gflops", 2 * 32 * c->macs_per_ns_core.value}, {"gb_s", c->memory_gb_s.value}});
  }
  return out;
}

}  // namespace

json size_model(const platform::Platform& platform, SizingQuestion question) {
  ModelShape shape = read_model_shape(question.config, question.name);
  complete(question, shape);
  CardGroup group(platform, question, shape, question.cards);
  const CardFit fit = group.fit(question.batch, *question.context);
  const bool compiled = group.not_compiled().empty();
  if (!compiled) shape.assumed.push_back("times by shape arithmetic: " + group.not_compiled());
  if (shape.head_size != group.share().head_size) {
    shape.assumed.push_back(
        fmt::format("heads of {} padded to {} on the card", shape.head_size, group.share().head_size));
  }
  if (!shape.encoder) {
    shape.assumed.push_back(fmt::format("a step reads keys up to the next power of two of blocks: at the end {} for {}",
                                        group.padded_keys(*question.context), *question.context));
  }
  if (question.cards > 1)
    shape.assumed.emplace_back("rates between cards: no figure is public, the ones used are guesses");

  json time = json::object();
  for (const CostConfig* config : {&device::measured_costs(), &device::spec_costs()}) {
    time[std::string(config->name)] =
        shape.encoder ? encoder_time(group, *config, question) : decoder_time(group, *config, question);
  }
  json out = {{"model", model_json(shape)},
              {"question",
               {{"batch", question.batch},
                {"context", *question.context},
                {"prompt", *question.prompt},
                {"cards", question.cards},
                {"block_size", question.block_size},
                {"max_num_batched_tokens", question.step_tokens}}},
              {"source", compiled ? "compiled programs" : "shape arithmetic"},
              {"assumed", shape.assumed},
              {"parameters", parameters_json(shape)},
              {"card", card_json(shape, group.share(), fit)},
              {"limits", limits_json(fit)},
              {"segments", segments_json(fit)},
              {"fits", fit.fits()},
              {"time", std::move(time)},
              {"advice", advice(shape, question, fit)}};
  if (!question.details) return out;
  out["tables"] = tables_json(platform, question, shape);
  out["programs"] = group.programs();
  out["rules"] = rules_json(out["programs"]);
  out["ceilings"] = ceilings_json();
  return out;
}

}  // namespace spyre::sizing
