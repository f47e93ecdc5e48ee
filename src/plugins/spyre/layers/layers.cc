#include "plugins/spyre/layers/layers.h"

namespace spyre::layers {

SpyreRotaryEmbedding::SpyreRotaryEmbedding(const Options& options) : RotaryEmbedding("SpyreRotaryEmbedding", options) {
  build_rotation_cache();
}

void SpyreRotaryEmbedding::build_rotation_cache() {
  const int64_t half = options_.head_size / 2, positions = options_.max_positions;
  check_table(2 * options_.head_size * static_cast<int64_t>(size_of(options_.dtype)));
  nn::HostTensor cache = nn::HostTensor::allocate(options_.dtype, {positions, 2, 2, half});
  const std::vector<float> inverse = frequencies();
  for (int64_t p = 0; p < positions; ++p) {
    const int64_t base = p * 4 * half;
    for (int64_t i = 0; i < half; ++i) {
      const auto [c, s] = cos_sin(p, inverse[i]);
      nn::store_float(cache, base + i, c);
      nn::store_float(cache, base + half + i, -s);
      nn::store_float(cache, base + 2 * half + i, s);
      nn::store_float(cache, base + 3 * half + i, c);
    }
  }
  cache_ = add_parameter({.name = options_.path + ".rotation_cache",
                          .type = graph::Type::tensor(options_.dtype, std::vector<int64_t>{positions, 2, 2, half}),
                          .buffer = std::move(cache)});
}

nn::Value SpyreRotaryEmbedding::apply(nn::Tracer& t, nn::Value x, nn::Value rows) const {
  return t.op("rotate_2x2", {x, rows});
}

namespace {

template <typename Base, typename Ours>
void replace(nn::LayerRegistry& registry) {
  registry.register_oot<Base>(
      [](const typename Base::Options& options) -> std::unique_ptr<Base> { return std::make_unique<Ours>(options); });
}

}  // namespace

void register_layers(nn::LayerRegistry& registry) {
  replace<nn::ColumnParallelLinear, SpyreColumnParallelLinear>(registry);
  replace<nn::MergedColumnParallelLinear, SpyreMergedColumnParallelLinear>(registry);
  replace<nn::QKVParallelLinear, SpyreQKVParallelLinear>(registry);
  replace<nn::RowParallelLinear, SpyreRowParallelLinear>(registry);
  replace<nn::ReplicatedLinear, SpyreReplicatedLinear>(registry);
  replace<nn::RotaryEmbedding, SpyreRotaryEmbedding>(registry);
  replace<nn::VocabParallelEmbedding, SpyreVocabParallelEmbedding>(registry);
  replace<nn::ParallelLMHead, SpyreParallelLMHead>(registry);
}

}  // namespace spyre::layers
