#include "python/native/settings.h"

#include <nanobind/stl/string.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/build_id.h"
#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/error.h"
#include "formats/model_config.h"
#include "python/native/bindings.h"
#include "python/native/platforms.h"
#include "python/native/sampling_params.h"
#include "python/native/values.h"
#include "runner/sampler.h"

namespace spyre::python {
namespace {

using platform::EngineConfig;
using platform::Preset;

// What kinds of value settings have. The type of the member decides how it is read and written.
using Member = std::variant<std::filesystem::path EngineConfig::*, std::string EngineConfig::*, Preset EngineConfig::*,
                            std::optional<DType> EngineConfig::*, bool EngineConfig::*, int EngineConfig::*,
                            int64_t EngineConfig::*, std::optional<int64_t> EngineConfig::*,
                            std::optional<double> EngineConfig::*, std::optional<std::vector<int64_t>> EngineConfig::*>;

struct Setting {
  const char* name;
  Member member;
};

constexpr Setting kSettings[] = {
    {"model", &EngineConfig::model},
    {"platform", &EngineConfig::platform},
    {"preset", &EngineConfig::preset},
    {"dtype", &EngineConfig::dtype},
    {"max_model_len", &EngineConfig::max_model_len},
    {"block_size", &EngineConfig::block_size},
    {"max_num_seqs", &EngineConfig::max_num_seqs},
    {"max_num_batched_tokens", &EngineConfig::max_num_batched_tokens},
    {"num_gpu_blocks_override", &EngineConfig::num_kv_blocks},
    {"kv_cache_memory_bytes", &EngineConfig::kv_cache_bytes},
    {"gpu_memory_utilization", &EngineConfig::memory_utilization},
    {"serving", &EngineConfig::serving},
    {"token_buckets", &EngineConfig::token_buckets},
    {"enforce_eager", &EngineConfig::enforce_eager},
    {"order", &EngineConfig::order},
    {"threads", &EngineConfig::threads},
    {"checked", &EngineConfig::checked},
    {"data_parallel_size", &EngineConfig::data_parallel_size},
    {"pipeline_parallel_size", &EngineConfig::pipeline_parallel_size},
    {"tensor_parallel_size", &EngineConfig::tensor_parallel_size},
};

// The words of a setting that is one of a few. The first is what "unset" means.
template <typename T>
struct Word {
  const char* word;
  T value;
};
constexpr Word<Preset> kPresets[] = {{"ours", Preset::kOurs}, {"original", Preset::kOriginal}};
constexpr Word<std::optional<DType>> kDtypes[] = {
    {"auto", std::nullopt}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}, {"float32", DType::kF32}};

template <typename T, size_t N>
T read_word(const Word<T> (&words)[N], nb::handle value, std::string_view name) {
  const std::string text = read_string(value, name);
  std::string known;
  for (const Word<T>& word : words) {
    if (text == word.word) return word.value;
    known += (known.empty() ? "" : ", ") + std::string(word.word);
  }
  throw_error(ErrorCode::kInvalidArgument, "{} is '{}', it must be one of {}", name, text, known);
}

template <typename T, size_t N>
nb::object write_word(const Word<T> (&words)[N], const T& value) {
  for (const Word<T>& word : words) {
    if (word.value == value) return nb::str(word.word);
  }
  throw_error(ErrorCode::kInternal, "a setting has a value without a word");
}

// None is not among what these see: read_settings() leaves the default then.
void read(nb::handle value, std::string_view name, std::filesystem::path& out) {
  PyObject* path = PyOS_FSPath(value.ptr());
  if (path == nullptr) PyErr_Clear();
  const nb::object text = nb::steal(path);
  out = read_string(text.is_valid() ? text : nb::borrow(value), name);
}
void read(nb::handle value, std::string_view name, std::string& out) {
  out = read_string(value, name);
}
void read(nb::handle value, std::string_view name, Preset& out) {
  out = read_word(kPresets, value, name);
}
void read(nb::handle value, std::string_view name, std::optional<DType>& out) {
  out = read_word(kDtypes, value, name);
}
void read(nb::handle value, std::string_view name, bool& out) {
  out = read_bool(value, name);
}
void read(nb::handle value, std::string_view name, int& out) {
  out = read_int32(value, name);
}
void read(nb::handle value, std::string_view name, int64_t& out) {
  out = read_int(value, name);
}
void read(nb::handle value, std::string_view name, std::optional<int64_t>& out) {
  out = read_int(value, name);
}
void read(nb::handle value, std::string_view name, std::optional<double>& out) {
  out = read_double(value, name);
}
void read(nb::handle value, std::string_view name, std::optional<std::vector<int64_t>>& out) {
  const Items items(value, name);
  out.emplace();
  for (int64_t i = 0; i < items.size(); ++i) out->push_back(read_int(items[i], fmt::format("{}[{}]", name, i)));
}

nb::object write(const std::filesystem::path& value) {
  return nb::str(value.c_str());
}
nb::object write(const std::string& value) {
  return nb::str(value.c_str(), value.size());
}
nb::object write(Preset value) {
  return write_word(kPresets, value);
}
nb::object write(const std::optional<DType>& value) {
  return write_word(kDtypes, value);
}
nb::object write(bool value) {
  return nb::bool_(value);
}
nb::object write(int value) {
  return nb::int_(value);
}
nb::object write(int64_t value) {
  return nb::int_(value);
}
nb::object write(const std::vector<int64_t>& values) {
  nb::list list;
  for (const int64_t value : values) list.append(value);
  return list;
}
nb::object write(const std::optional<int64_t>& value) {
  return value ? write(*value) : nb::none();
}
nb::object write(const std::optional<double>& value) {
  return value ? nb::object(nb::float_(*value)) : nb::none();
}
nb::object write(const std::optional<std::vector<int64_t>>& value) {
  return value ? write(*value) : nb::none();
}

const Setting& find_setting(const std::string& name) {
  std::string known;
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return setting;
    known += (known.empty() ? "" : ", ") + std::string(setting.name);
  }
  throw_error(ErrorCode::kInvalidArgument, "there is no setting '{}'; known: {}", name, known);
}

nb::dict complete_config(const nb::dict& settings, const std::string& config_json, const std::string& generation_json) {
  EngineConfig config = read_settings(settings);
  const platform::Platform& platform = platforms().get(config.platform);
  platform.check_and_update_config(
      config, formats::parse_model_config(config_json, generation_json, "config.json", "generation_config.json"));
  return write_settings(config);
}

nb::dict kernels() {
  const CpuFeatures cpu = CpuFeatures::detected();
  nb::dict orders;
  for (const auto& [name, dtype] : kDtypes) {
    if (dtype) orders[name] = write(std::string(to_string(resolve_order(*dtype, OrderChoice::kAuto, cpu))));
  }
  nb::dict result;
  result["cpu"] = write(to_string(cpu));
  result["kernels"] = write(to_string(CpuFeatures::capped_by_environment()));
  result["orders"] = orders;
  return result;
}

}  // namespace

EngineConfig read_settings(const nb::dict& settings) {
  EngineConfig config;
  for (const auto [key, value] : settings) {
    const Setting& setting = find_setting(read_string(key, "the name of a setting"));
    if (value.is_none()) continue;
    std::visit([&](auto member) { read(value, setting.name, config.*member); }, setting.member);
  }
  return config;
}

nb::dict write_settings(const EngineConfig& config) {
  nb::dict settings;
  for (const Setting& setting : kSettings) {
    settings[setting.name] = std::visit([&](auto member) { return write(config.*member); }, setting.member);
  }
  return settings;
}

void bind_settings(nb::module_& m) {
  m.def("build_id", [] { return std::string(build_id()); });
  m.def("kernels", &kernels, "What this machine's CPU offers, what of it the kernels use, and the orders of sums.");
  m.def("complete_config", &complete_config, nb::arg("settings"), nb::arg("config_json"),
        nb::arg("generation_json") = "", "Settings as the platform completes them for a model's config.json.");
  m.def(
      "check_sampling_params",
      [](nb::handle params, int64_t vocab_size) { runner::validate(read_sampling_params(params), vocab_size); },
      nb::arg("params"), nb::arg("vocab_size"), "Raises for a field that is out of range or not built, naming it.");
}

}  // namespace spyre::python
