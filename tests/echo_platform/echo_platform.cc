// The platform "echo": for tests of hosts, in C++ and in Python. It serves any model folder that the checkpoint reader
// opens, without reading the weights: the vocabulary, the longest sequence and the bytes of a KV block are the model's,
// what it computes is the chain model (runner/testing/chain_runner.h): every context is verified through the block
// table, and the next token is the last one plus 1.
//
//   SPYRE_ECHO_FAULT=throw@3,nan@5  the third forward pass throws; in the fifth the first row of logits, if it has one,
//                                   is NaN. Forward passes are counted from 1, by worker.
//   SPYRE_ECHO_DELAY_US=200         how long each forward pass takes at least
//
// Both are read when the worker is made.
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <thread>

#include "base/build_id_value.h"
#include "base/error.h"
#include "platform/limits.h"
#include "platform/memory.h"
#include "platform/plugin.h"
#include "runner/testing/chain_runner.h"

namespace {

using spyre::ErrorCode;
using spyre::throw_error;
using spyre::runner::ForwardBatch;
using spyre::runner::Logits;
using spyre::runner::testing::ChainRunner;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int64_t number(const char* name, std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw_error(ErrorCode::kInvalidArgument, "{}: '{}' is no number from {} on", name, text, least);
  }
  return value;
}

struct Faults {
  std::set<int64_t> throwing, nan;  // forward passes, from 1 on
  std::chrono::microseconds delay{0};

  static Faults from_environment();
};

Faults Faults::from_environment() {
  constexpr const char* kFault = "SPYRE_ECHO_FAULT";
  constexpr const char* kDelay = "SPYRE_ECHO_DELAY_US";
  Faults faults;
  for (std::string_view rest = variable(kFault); !rest.empty();) {
    const std::string_view fault = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), fault.size() + 1));
    const size_t at = fault.find('@');
    const std::string_view kind = fault.substr(0, at);
    if (at == std::string_view::npos || (kind != "throw" && kind != "nan")) {
      throw_error(ErrorCode::kInvalidArgument, "{}: '{}' is neither throw@N nor nan@N", kFault, fault);
    }
    (kind == "throw" ? faults.throwing : faults.nan).insert(number(kFault, fault.substr(at + 1), 1));
  }
  if (const std::string_view delay = variable(kDelay); !delay.empty()) {
    faults.delay = std::chrono::microseconds(number(kDelay, delay, 0));
  }
  return faults;
}

class EchoModelRunner final : public ChainRunner {
 public:
  EchoModelRunner(const Shape& shape, Faults faults) : ChainRunner(shape), faults_(std::move(faults)) {
    before_forward = [this](const ForwardBatch&) {
      if (faults_.delay.count() > 0) std::this_thread::sleep_for(faults_.delay);
      if (faults_.throwing.contains(forwards)) {
        throw_error(ErrorCode::kUnavailable, "echo: forward pass {} throws, as SPYRE_ECHO_FAULT asks", forwards);
      }
    };
    after_forward = [this](const ForwardBatch&, Logits& logits) {
      if (!faults_.nan.contains(forwards) || logits.values.empty()) return;
      std::fill_n(logits.values.begin(), logits.vocab_size, std::numeric_limits<float>::quiet_NaN());
    };
  }

  void initialize_kv_cache(int64_t num_blocks) override {
    spyre::platform::require_memory("KV cache", num_blocks, "blocks", bytes_per_page(), "give fewer blocks");
    ChainRunner::initialize_kv_cache(num_blocks);
  }

 private:
  const Faults faults_;
};

class EchoPlatform final : public spyre::platform::Platform {
 public:
  std::string name() const override { return "echo"; }
  std::string description() const override {
    return "for tests: verifies every context, answers the last token plus 1";
  }

  void check_and_update_config(spyre::platform::EngineConfig& config,
                               const spyre::formats::ModelConfig& model) const override {
    spyre::platform::refuse_parallel(config, "the echo platform computes nothing that could be divided");
    if (!config.dtype) config.dtype = spyre::DType::kF32;
    if (*config.dtype != spyre::DType::kF32 && !spyre::is_16bit_float(*config.dtype)) {
      throw_error(ErrorCode::kInvalidArgument, "dtype {} is not one that the echo platform takes: f32, f16, bf16",
                  spyre::to_string(*config.dtype));
    }
    spyre::platform::complete_lengths(config, model, 16);
    spyre::platform::check_threads(config);
  }

  std::unique_ptr<spyre::runner::ModelRunner> create_model_runner(
      const spyre::platform::EngineConfig& config,
      std::shared_ptr<const spyre::formats::Checkpoint> checkpoint) const override {
    const spyre::formats::ModelConfig& model = checkpoint->config();
    const int64_t values = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim;  // of a token
    const ChainRunner::Shape shape{
        .vocab_size = model.vocab_size,
        .block_size = *config.block_size,
        .bytes_per_block = values * *config.block_size * static_cast<int64_t>(spyre::size_of(*config.dtype))};
    return std::make_unique<EchoModelRunner>(shape, Faults::from_environment());
  }
};

}  // namespace

extern "C" SPYRE_API const spyre::platform::PluginEntry* spyre_platform_plugin() {
  static const spyre::platform::PluginEntry entry{
      .build_id = SPYRE_BUILD_ID,
      .name = "echo",
      .create = []() -> spyre::platform::Platform* { return new EchoPlatform(); },
  };
  return &entry;
}
