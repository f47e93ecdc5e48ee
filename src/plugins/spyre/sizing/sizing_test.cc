// Sizing questions whose figures are worked out by hand, and what the two ways to a step's cost must agree in.
#include "plugins/spyre/sizing/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "formats/model_config.h"
#include "nn/models/causal_lm.h"
#include "nn/tracer.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/sizing/card_fit.h"
#include "plugins/spyre/sizing/card_group.h"
#include "plugins/spyre/sizing/card_share.h"
#include "plugins/spyre/sizing/model_shape.h"

namespace spyre::sizing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

json config_of(const std::string& model) {
  return json::parse(std::ifstream(std::string(SPYRE_TEST_DATA) + "/sizing/" + model + "/config.json"));
}

platform::SizingQuestion question(const json& config, int64_t batch, int64_t context, int64_t cards = 1) {
  return {.config = config, .name = "config.json", .batch = batch, .context = context, .cards = cards};
}

json ask(const json& config, int64_t batch, int64_t context, int64_t cards = 1) {
  return size_model(plugin::SpyrePlatform(), question(config, batch, context, cards));
}

std::string refusal(const json& config, int64_t batch, int64_t context, int64_t cards = 1) {
  try {
    ask(config, batch, context, cards);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sizing, GraniteOnOneCard) {
  const json a = ask(config_of("granite-8b"), 32, 8192);
  // q, k, v: 4096 x (4096 + 2 x 1024); o: 4096 x 4096; three matrices of 4096 x 12800; the head is tied.
  const int64_t attention = 40 * (4096 * 6144 + 4096 * 4096), mlp = int64_t{40} * 3 * 4096 * 12800;
  EXPECT_EQ(a["parameters"]["attention"], attention);
  EXPECT_EQ(a["parameters"]["mlp"], mlp);
  EXPECT_EQ(a["parameters"]["head"], 0);
  EXPECT_EQ(a["parameters"]["total"], 8170848256);
  // On the card: 49155 rows to gather from, and 51200 columns of the head beside them; a rotary cache of 8192 positions
  // with 2 x 2 x 64 entries.
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["embedding"], 49155 * 4096 * 2);
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["head"], 51200 * 4096 * 2);
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["positions"], 8192 * 4 * 64 * 2);
  EXPECT_EQ(a["card"]["weight_bytes"], 2 * (attention + mlp) + (49155 + 51200 + 81) * 4096 * 2 + 8192 * 4 * 64 * 2);
  // 8 KV heads of 128 in 16 bits, K and V, 40 layers; 32 x 64 blocks and the null block.
  EXPECT_EQ(a["card"]["kv_bytes_per_token"], 163840);
  EXPECT_EQ(a["card"]["kv_blocks"], 2049);
  EXPECT_EQ(a["card"]["kv_bytes"], int64_t{2049} * 128 * 163840);
  EXPECT_EQ(a["fits"], true);
  EXPECT_EQ(a["source"], "compiled programs");
  // A step reads all weights but the table at 150 GB/s; activations and the divisions of 32 rows add little. Its keys
  // and values are read at least once, and take at least that.
  const json& step = a["time"]["measured"]["decode_at_end"];
  const double weights = (2.0 * static_cast<double>(attention + mlp) + 51200.0 * 4096 * 2) / 150e9;
  const double rest = step["body_seconds"].get<double>() + step["head_seconds"].get<double>();
  EXPECT_GT(rest, weights);
  EXPECT_LT(rest, 1.3 * weights);
  EXPECT_GT(step["attention_seconds"].get<double>(), 32.0 * 8192 * 163840 / 150e9);
  const double seconds = step["seconds"];
  // Pages head by head are not copied as often.
  EXPECT_LT(a["time"]["measured"]["head_major_decode_at_end_seconds"].get<double>(), seconds);
  EXPECT_GT(a["time"]["measured"]["head_major_decode_at_end_seconds"].get<double>(), rest);
  EXPECT_LT(a["time"]["spec"]["decode_at_end"]["seconds"].get<double>(), seconds);
  EXPECT_DOUBLE_EQ(a["time"]["measured"]["decode_tokens_per_second_at_end"], 32 / seconds);
}

TEST(Sizing, Llama70BOnEightCards) {
  const json a = ask(config_of("llama-70b"), 32, 8192, 8);
  EXPECT_EQ(a["parameters"]["total"], 70553706496);
  // One KV head and eight heads of each layer, 3584 columns of the MLP, 16032 rows of the vocabulary, in the head
  // 16384.
  EXPECT_EQ(a["card"]["kv_heads"], 1);
  EXPECT_EQ(a["card"]["mlp_columns"], 3584);
  EXPECT_EQ(a["card"]["head_rows"], 16384);
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["attention"], int64_t{80} * 2 * (8192 * 1280 + 1024 * 8192));
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["mlp"], int64_t{80} * 2 * 3 * 8192 * 3584);
  EXPECT_EQ(a["card"]["weight_bytes_by_kind"]["embedding"], int64_t{16032} * 8192 * 2);
  EXPECT_EQ(a["card"]["kv_bytes_per_token"], 2 * 80 * 128 * 2);
  EXPECT_EQ(a["fits"], true);
  // 161 sums of 32 x 8192 numbers by 14 messages each, through the host's memory: 12 GB/s and 30 us.
  EXPECT_NEAR(a["time"]["measured"]["decode"]["between_cards_seconds"].get<double>(),
              161 * 14 * (32.0 * 8192 * 2 / 8 / 12e9 + 30e-6), 1e-9);
  // On one card it does not fit; two hold it.
  const json one = ask(config_of("llama-70b"), 1, 2048);
  EXPECT_EQ(one["fits"], false);
  EXPECT_THAT(one["advice"].dump(), HasSubstr("more cards: 2 hold it"));
}

TEST(Sizing, MiniLmInBatchesOf256) {
  const json a = ask(config_of("minilm"), 256, 256);
  // Published with its pooler, 384 x 384 + 384, as 22,713,216.
  EXPECT_EQ(a["parameters"]["total"], 22713216 - (384 * 384 + 384));
  EXPECT_EQ(a["model"]["kind"], "encoder");
  EXPECT_EQ(a["card"]["kv_bytes"], 0);
  EXPECT_EQ(a["card"]["head_rows"], 0);
  EXPECT_EQ(a["source"], "shape arithmetic");
  EXPECT_THAT(a["assumed"].dump(), HasSubstr("heads of 32 padded to 64"));
  EXPECT_EQ(a["fits"], true);
  // 6 x (4 x 384 x 768 (o and q, k, v on heads of 64) + 2 x 384 x 1536) multiply-adds a token.
  EXPECT_EQ(a["time"]["spec"]["batch"]["multiply_adds_without_keys"],
            int64_t{6} * 256 * 256 * (4 * 384 * 768 + 2 * 384 * 1536));
  EXPECT_DOUBLE_EQ(a["time"]["measured"]["texts_per_second"],
                   256 / a["time"]["measured"]["batch"]["seconds"].get<double>());
}

TEST(Sizing, AnUnknownDecoderIsSizedWithItsAssumptionsSaid) {
  const json config = {
      {"model_type", "newcomer"}, {"n_layer", 12}, {"n_embd", 768}, {"n_head", 12}, {"vocab_size", 50257}};
  const json a = ask(config, 4, 1024);
  // A GPT-2 shape: MLP of 4 x 768, no gate, 2048 learned positions, a tied head, biases and layer norms.
  EXPECT_EQ(a["parameters"]["mlp"], 12 * (2 * 768 * 3072 + 3072 + 768));
  EXPECT_EQ(a["parameters"]["positions"], 2048 * 768);
  EXPECT_EQ(a["parameters"]["attention"], 12 * (4 * 768 * 768 + 4 * 768));
  EXPECT_EQ(a["card"]["kv_bytes_per_token"], 2 * 12 * 12 * 64 * 2);
  const std::string assumed = a["assumed"].dump();
  for (const char* what : {"newcomer", "2048 positions", "an MLP of 4 x 768", "without a gate", "tied head"}) {
    EXPECT_THAT(assumed, HasSubstr(what));
  }
}

TEST(Sizing, AMixtureOfExpertsKeepsAllAndMeetsFew) {
  json config = config_of("granite-8b");
  config["architectures"] = {"MixtralForCausalLM"};
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  const json a = ask(config, 1, 1024);
  const int64_t expert = int64_t{40} * 3 * 4096 * 12800;
  EXPECT_EQ(a["parameters"]["mlp"], 8 * expert + 40 * 8 * 4096);
  EXPECT_EQ(a["parameters"]["total"].get<int64_t>() - a["parameters"]["active"].get<int64_t>(), 6 * expert);
}

TEST(Sizing, WhatDoesNotFitSaysWhatWould) {
  const json a = ask(config_of("granite-8b"), 128, 8192);  // 160 GiB of keys and values
  EXPECT_EQ(a["fits"], false);
  const std::string advice = a["advice"].dump();
  EXPECT_THAT(advice, HasSubstr("fewer sequences: "));
  EXPECT_THAT(advice, HasSubstr("a shorter context: "));
  EXPECT_THAT(advice, HasSubstr("more cards: 4 hold it (8 heads and 2 KV heads on each)"));
  // The advice holds, and one more of anything does not.
  const auto number_after = [&](const std::string& text) {
    return std::stoll(advice.substr(advice.find(text) + text.size()));
  };
  const int64_t sequences = number_after("fewer sequences: "), context = number_after("a shorter context: ");
  EXPECT_EQ(ask(config_of("granite-8b"), sequences, 8192)["fits"], true);
  EXPECT_EQ(ask(config_of("granite-8b"), sequences + 1, 8192)["fits"], false);
  EXPECT_EQ(ask(config_of("granite-8b"), 128, context)["fits"], true);
  EXPECT_EQ(ask(config_of("granite-8b"), 128, context + 128)["fits"], false);
}

TEST(Sizing, CardsDivideHeadsOrRepeatThem) {
  EXPECT_THAT(refusal(config_of("granite-8b"), 1, 1024, 3),
              HasSubstr("32 heads are no multiple of 3 cards; possible: 1, 2, 4, 8, 16, 32"));
  const json a = ask(config_of("granite-8b"), 1, 1024, 16);
  EXPECT_EQ(a["card"]["kv_heads"], 1);
  EXPECT_EQ(a["card"]["mlp_columns"], 832);  // 12800 up to 13 x 64 x 16
  EXPECT_THAT(a["advice"].dump(), HasSubstr("each is kept 2 times"));
}

TEST(Sizing, QuestionsOutOfRangeAreRefused) {
  const json granite = config_of("granite-8b");
  EXPECT_THAT(refusal(granite, 0, 1024), HasSubstr("batch is 0"));
  EXPECT_THAT(refusal(granite, 1 << 20, 1024), HasSubstr("batch is 1048576"));
  EXPECT_THAT(refusal(granite, 1, 131073), HasSubstr("context is 131073"));
  EXPECT_THAT(refusal(granite, 1, 1024, 49), HasSubstr("cards is 49"));
  EXPECT_THAT(refusal(granite, 65536, 131072), HasSubstr("at most 1073741824 tokens"));
  json broken = granite;
  broken.erase("hidden_size");
  EXPECT_THAT(refusal(broken, 1, 1024), HasSubstr("config.json: hidden_size is missing"));
  broken = granite;
  broken["num_key_value_heads"] = 7;
  EXPECT_THAT(refusal(broken, 1, 1024), HasSubstr("32 heads are no multiple of 7 KV heads"));
  broken = granite;
  broken["intermediate_size"] = int64_t{1} << 40;
  EXPECT_THAT(refusal(broken, 1, 1024), HasSubstr("intermediate_size"));
  EXPECT_THAT(refusal({{"model_type", "t5"}, {"is_encoder_decoder", true}}, 1, 1024),
              HasSubstr("encoder with a decoder"));
}

TEST(CardFit, SegmentsHoldWholeTensors) {
  ModelShape shape{.layers = 1};
  CardShare share{.kv_heads = 1, .head_size = 64};
  const int64_t gib = int64_t{1} << 30;
  // Eleven GiB each: a segment takes one, and the seventh finds no place though 96 GiB would hold eight.
  share.tensors = {{"mlp", "w", 11 * gib, 6}};
  EXPECT_TRUE(fit_card(shape, share, {}, 0).fits());
  share.tensors[0].count = 7;
  const CardFit fit = fit_card(shape, share, {}, 0);
  EXPECT_FALSE(fit.fits());
  EXPECT_FALSE(fit.limits[1].met);
  EXPECT_LE(fit.limits[1].used, fit.limits[1].limit);
  // A tensor of 20 GiB takes two whole segments.
  share.tensors = {{"mlp", "w", 20 * gib, 3}};
  EXPECT_TRUE(fit_card(shape, share, {}, 0).fits());
  share.tensors[0].count = 4;
  EXPECT_FALSE(fit_card(shape, share, {}, 0).fits());
}

TEST(CardFit, EachLimitIsMetByItself) {
  ModelShape shape{.layers = 1};
  CardShare share{.kv_heads = 8, .head_size = 128};
  share.tensors = {{"mlp", "w", 128, 1}};
  const auto broken = [&](const KvDemand& kv, int64_t pool) {
    std::set<std::string_view> names;
    for (const CardLimit& l : fit_card(shape, share, kv, pool).limits) {
      if (!l.met) names.insert(l.name);
    }
    return names;
  };
  EXPECT_TRUE(broken({}, kPoolBytes).empty());
  EXPECT_EQ(broken({}, kPoolBytes + 1), std::set<std::string_view>{"pool segment"});
  // 2048 bytes of K a token: 1 GiB is 4096 blocks of 128, the null block one of them.
  EXPECT_TRUE(broken({.sequences = 1, .length = 4094 * 128}, 0).empty());
  EXPECT_EQ(broken({.sequences = 1, .length = 4095 * 128}, 0), std::set<std::string_view>{"gather span"});
  share.tensors[0].count = kDmaMappings - 2;
  EXPECT_TRUE(broken({}, 0).empty());
  share.tensors[0].count = kDmaMappings - 1;
  EXPECT_EQ(broken({}, 0), std::set<std::string_view>{"DMA mappings"});
}

// The bytes that shape arithmetic gives are those that compiled programs want.
TEST(CardShare, WeighsWhatProgramsRead) {
  for (const char* extra : {R"({})", R"({"head_dim": 80})", R"({"attention_bias": true})",
                            R"({"tie_word_embeddings": false})", R"({"intermediate_size": 1000})"}) {
    json config = config_of("granite-8b");
    config.update({{"num_hidden_layers", 3},
                   {"hidden_size", 512},
                   {"intermediate_size", 1536},
                   {"num_attention_heads", 8},
                   {"num_key_value_heads", 2},
                   {"vocab_size", 4096}});
    config.update(json::parse(extra));
    const ModelShape shape = read_model_shape(config, "config.json");
    const CardShare share = share_of_card(shape, 1, 512);

    const plugin::SpyrePlatform platform;
    const formats::ModelConfig model_config = formats::parse_model_config(config.dump(), "", "config.json", "");
    platform::EngineConfig engine{.max_model_len = 512};
    platform.check_and_update_config(engine, model_config);
    const auto model = platform::build_model(platform, engine, model_config);
    compiler::Compiler compiler({.features = CpuFeatures::detected()});
    std::map<const nn::Parameter*, int64_t> bytes;
    nn::Tracer body(64, nn::find_blocks(*model)), head(64);
    const auto hidden = head.step_input(nn::StepInput::kHidden, head.rows_type(*engine.dtype, {model->hidden_size()}));
    for (const nn::Trace& trace :
         {body.finish({model->forward(body)}), head.finish({model->compute_logits(head, hidden)})}) {
      for (const nn::Segment& segment : trace.segments) {
        const auto program = compiler.compile(segment.graph);
        for (size_t i = 0; i < segment.parameters.size(); ++i) {
          bytes[segment.parameters[i]] = program->parameter_specs[i].card_bytes();
        }
      }
    }
    int64_t all = 0;
    for (const auto& [parameter, size] : bytes) all += size;
    EXPECT_EQ(share.weight_bytes(), all) << extra;
  }
}

// Two ways to one figure: what programs are compiled to, and the shape. They differ in how work is divided and in which
// intermediates are written; not by more than a fifth where weights or products decide.
TEST(StepParts, ShapeArithmeticIsNearTheCompiledPrograms) {
  const json config = config_of("granite-8b");
  const ModelShape shape = read_model_shape(config, "config.json");
  const CardShare share = share_of_card(shape, 1, 8192);
  const auto from_shape = parts_from_shape(shape, share);
  const auto compiled = parts_from_programs(plugin::SpyrePlatform(), config, shape, share, 8192, 512);
  for (const device::CostConfig* costs : {&device::measured_costs(), &device::spec_costs()}) {
    for (const int64_t rows : {1, 32, 512}) {
      const PartCost a = from_shape->body(*costs, rows), b = compiled->body(*costs, rows);
      EXPECT_EQ(a.macs, b.macs) << rows;
      EXPECT_NEAR(a.ns / b.ns, 1, 0.2) << costs->name << " " << rows;
      if (rows > 32) continue;  // a step has a row of logits for each sequence
      EXPECT_NEAR(from_shape->head(*costs, rows).ns / compiled->head(*costs, rows).ns, 1, 0.2)
          << costs->name << " " << rows;
    }
  }
}

// Long contexts carry the time of a page forward instead of planning a thousand of them.
TEST(CardGroup, AttentionGrowsByWholePages) {
  const json config = config_of("granite-8b");
  const ModelShape shape = read_model_shape(config, "config.json");
  platform::SizingQuestion q = question(config, 4, 32768);
  CardGroup group(plugin::SpyrePlatform(), q, shape, 1);
  const auto attention = [&](int64_t length) { return group.decode(device::measured_costs(), 4, length).attention_ns; };
  const double at_4k = attention(4096), at_8k = attention(8192), at_16k = attention(16384), at_32k = attention(32768);
  EXPECT_GT(at_4k, 0);
  EXPECT_NEAR((at_16k - at_8k) / (at_8k - at_4k), 2, 1e-6);
  EXPECT_NEAR((at_32k - at_16k) / (at_16k - at_8k), 2, 1e-6);
  EXPECT_EQ(attention(4097), at_8k);  // the ladder's next power of two
}

TEST(Sizing, TablesHaveEveryNumberOfCardsThatDivides) {
  platform::SizingQuestion q = question(config_of("minilm"), 1, 256);
  q.details = true;
  const json answer = size_model(plugin::SpyrePlatform(), q), &tables = answer["tables"];
  EXPECT_TRUE(answer["programs"].empty());
  std::vector<int64_t> cards;
  for (const json& group : tables) cards.push_back(group["cards"]);
  EXPECT_EQ(cards, (std::vector<int64_t>{1, 2, 4}));  // 12 heads
  for (const json& row : tables[0]["rows"]) {
    EXPECT_GE(row["measured"].get<double>(), row["spec"].get<double>());
  }
}

// What a page draws adds up to what the answer says.
TEST(Sizing, DetailsHaveTheProgramsOfAStep) {
  platform::SizingQuestion q = question(config_of("granite-8b"), 32, 1024);
  q.details = true;
  const json answer = size_model(plugin::SpyrePlatform(), q);
  double decode = 0;
  int64_t layers = 0;
  for (const json& p : answer["programs"]) {
    int64_t next = 0;
    for (const json& bundle : p["bundles"]) {
      EXPECT_EQ(bundle["first"], next);
      next = bundle["end"];
    }
    EXPECT_EQ(next, std::ssize(p["ops"]));
    for (const json& op : p["ops"]) {
      EXPECT_LE(op["cores"].get<int64_t>(), 32);
      for (const char* side : {"in", "out"}) {
        for (const int64_t b : op[side]) EXPECT_LT(b, std::ssize(p["buffers"]));
      }
    }
    if (p["rows"] != 32) continue;
    decode += p["launches"].get<double>() * p["ns"]["measured"].get<double>();
    if (p["launches"] > 1) layers += p["launches"].get<int64_t>();
  }
  EXPECT_EQ(layers, 39);  // the first layer has no residual and is a program of its own
  const json& step = answer["time"]["measured"]["decode"];
  EXPECT_NEAR(decode * 1e-9, step["body_seconds"].get<double>() + step["head_seconds"].get<double>(), 1e-9);
  EXPECT_FALSE(answer["rules"].empty());
}

}  // namespace
}  // namespace spyre::sizing
