#include "platform/null_platform.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spyre::platform {
namespace {

[[noreturn]] void unimplemented(const char* call) {
  throw_error(ErrorCode::kUnsupported, "null platform: {} is unimplemented", call);
}

}  // namespace

void NullPlatform::check_and_update_config(EngineConfig& /*config*/, const formats::ModelConfig& /*model*/) const {
  unimplemented("check_and_update_config");
}

std::unique_ptr<runner::ModelRunner> NullPlatform::create_model_runner(
    const EngineConfig& /*config*/, std::shared_ptr<const formats::Checkpoint> /*checkpoint*/) const {
  unimplemented("create_model_runner");
}

void NullModelRunner::load_model(const std::function<void(const runner::LoadProgress&)>& /*progress*/) {
  unimplemented("load_model");
}
int64_t NullModelRunner::vocab_size() const {
  unimplemented("vocab_size");
}
runner::KvCacheSpec NullModelRunner::kv_cache_spec() const {
  unimplemented("kv_cache_spec");
}
void NullModelRunner::initialize_kv_cache(int64_t /*num_blocks*/) {
  unimplemented("initialize_kv_cache");
}
runner::WarmUpReport NullModelRunner::warm_up() {
  unimplemented("warm_up");
}
void NullModelRunner::forward(const runner::ForwardBatch& /*batch*/, runner::Logits& /*logits*/) {
  unimplemented("forward");
}
void NullModelRunner::copy_block(int32_t /*from*/, int32_t /*to*/) {
  unimplemented("copy_block");
}
void NullModelRunner::zero_block(int32_t /*block*/) {
  unimplemented("zero_block");
}
nlohmann::json NullModelRunner::report(const std::string& /*topic*/) const {
  unimplemented("report");
}

}  // namespace spyre::platform
