#include "plugins/spyre/worker/meters.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "platform/memory.h"
#include "plugins/spyre/kernels/kernel_table.h"
#include "plugins/spyre/kernels/peak.h"

namespace spyre::worker {
namespace {

using kernels::PeakKind;
using nlohmann::json;

constexpr int kPasses = 3;  // one pass is at the mercy of a neighbour; the median of three seldom is

template <typename Measure>
double median_of_passes(Measure&& measure) {
  std::vector<double> values;
  for (int i = 0; i < kPasses; ++i) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return values[kPasses / 2];
}

size_t parse_bytes(std::string_view text) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes < 1 || bytes > (uint64_t{1} << 46)) {
    throw_error(ErrorCode::kInvalidArgument, "meters: '{}' is not a size in bytes", text);
  }
  platform::require_memory("buffer to stream over", 1, "buffer", static_cast<int64_t>(bytes), "ask for a smaller one");
  return bytes;
}

json all_peaks(int threads) {
  json out = json::array();
  for (PeakKind kind :
       {PeakKind::kMulAddXmm, PeakKind::kFmaYmm, PeakKind::kFmaZmm, PeakKind::kDotBf16, PeakKind::kTileBf16}) {
    if (!kernels::can_measure(kind, CpuFeatures::detected())) continue;
    out.push_back({{"instruction", kernels::to_string(kind)},
                   {"gflops_1_thread", median_of_passes([&] { return kernels::measure_peak_gflops(kind, 1); })},
                   {"gflops", median_of_passes([&] { return kernels::measure_peak_gflops(kind, threads); })}});
  }
  return out;
}

}  // namespace

json measure_meters(std::string_view topic, const device::SoftwareDevice& device, DType dtype) {
  const int threads = device.options().threads;
  if (topic == "peak") {
    const kernels::GemmKernels& gemm = kernels::select_kernels(device.options().features, dtype, device.order(dtype));
    const PeakKind kind = kernels::peak_of(gemm.level);
    return {{"gemm", gemm.name},
            {"instruction", kernels::to_string(kind)},
            {"threads", threads},
            {"gflops", median_of_passes([&] { return kernels::measure_peak_gflops(kind, threads); })}};
  }
  if (topic.starts_with("stream/")) {
    const kernels::StreamReader reader(parse_bytes(topic.substr(7)));
    return {{"bytes", reader.bytes()},
            {"threads", threads},
            {"gbps", median_of_passes([&] { return reader.measure(threads); })}};
  }
  if (topic.starts_with("all/")) {
    const kernels::StreamReader reader(parse_bytes(topic.substr(4)));
    return {{"threads", threads},
            {"stream",
             {{"bytes", reader.bytes()},
              {"gbps_1_thread", median_of_passes([&] { return reader.measure(1); })},
              {"gbps", median_of_passes([&] { return reader.measure(threads); })}}},
            {"peaks", all_peaks(threads)}};
  }
  return nullptr;
}

}  // namespace spyre::worker
