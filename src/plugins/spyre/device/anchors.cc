#include "plugins/spyre/device/anchors.h"

#include <cmath>

#include "plugins/spyre/device/cost.h"

namespace spyre::device {
namespace {

constexpr int64_t kMega = 1 << 20;
constexpr double kPointwise = 0.085, kReduce = 0.07, kBroadcast = 0.05, kTransport = 0.06, kSoftmax = 0.21,
                 kMatmul = 0.275,
                 kBmm = 0.33;  // RMS errors; the middle where a range is given

double model_ns(const OpWork& work) {
  return estimate_ns(measured_costs(), work);
}

// |bytes| at |gb_s|.
double at_rate(int64_t bytes, double gb_s) {
  return static_cast<double>(bytes) / gb_s;
}

// y = f(x) of |bytes| each, on all cores.
OpWork pointwise(int64_t bytes) {
  return {.elements = bytes / 2, .read_bytes = bytes, .write_bytes = bytes, .cores = 32};
}

// [m, k] x [k, n] in 16 bits, divided over rows and columns of the result, K whole.
OpWork matmul(int64_t m, int64_t k, int64_t n) {
  return {
      .macs = m * k * n, .read_bytes = 2 * (m * k + k * n), .write_bytes = 2 * m * n, .cores = 32, .rows_per_core = 64};
}

OpWork restickify(int64_t bytes) {
  return {.read_bytes = bytes, .write_bytes = bytes, .cores = 32, .restickify = true};
}

// A product that is bound by nothing but its rate: bytes left out.
OpWork products_only(MatmulForm form, int64_t batch) {
  return {.macs = int64_t{1} << 36, .cores = 32, .rows_per_core = 64, .form = form, .batch = batch};
}

double products_at(double macs_per_ns_core) {
  return static_cast<double>(int64_t{1} << 36) / 32 / macs_per_ns_core;
}

// Softmax of 512 x 1024 on one core: |reads| times over the input, written once.
OpWork softmax(int64_t reads) {
  const int64_t elements = 512 * 1024;
  return {.elements = 5 * elements, .read_bytes = reads * 2 * elements, .write_bytes = 2 * elements, .cores = 1};
}

OpWork transport(WorkKind kind) {
  return {.read_bytes = 16 * kMega, .write_bytes = 16 * kMega, .cores = 32, .kind = kind};
}

OpWork reduction(int64_t rows, int64_t cores) {
  return {.read_bytes = 64 * kMega, .cores = cores, .kind = WorkKind::kReduction, .reduced_rows = rows};
}

void add_memory(std::vector<Anchor>& out) {
  const OpWork read{.read_bytes = 64 * kMega, .cores = 32};
  out.push_back({"one-way read, 150 GB/s", "TS", "M", false, at_rate(64 * kMega, 150), model_ns(read), kPointwise, ""});
  out.push_back({"balanced read and write, 105 GB/s", "TS", "M", false, at_rate(32 * kMega, 105),
                 model_ns(pointwise(16 * kMega)), kPointwise, ""});
  for (const auto& [name, megabytes] : {std::pair<std::string_view, int64_t>{"y = 2x of 2 MB, 100 GB/s", 2},
                                        {"y = 2x of 8 MB, 100 GB/s", 8},
                                        {"y = 2x of 32 MB, 100 GB/s", 32}}) {
    const int64_t bytes = megabytes * kMega;
    out.push_back({name, "AH", "M", true, at_rate(2 * bytes, 100), model_ns(pointwise(bytes)), kPointwise, ""});
  }
  out.push_back(
      {"y = 2x of 1 MB, 66 GB/s", "AH", "M", true, at_rate(2 * kMega, 66), model_ns(pointwise(kMega)), kPointwise,
       "a fixed cost would explain it (12 us), but the same source's 2 MB, at the full rate, leaves no room for "
       "one: two points of one curve that no line goes through"});
}

void add_products(std::vector<Anchor>& out) {
  out.push_back({"sustained matmul, 1140 MAC/ns/core", "TS", "M", false, products_at(1140),
                 model_ns(products_only(MatmulForm::kFull, 1)), kMatmul, ""});
  out.push_back({"batch of matrices in default order, 160 MAC/ns/core", "TS", "M", false, products_at(160),
                 model_ns(products_only(MatmulForm::kBatchDefaultOrder, 8)), kBmm, ""});
  out.push_back({"projection of a batch of 4, 705 MAC/ns/core", "TS", "M", false, products_at(705),
                 model_ns(products_only(MatmulForm::kProjection, 4)), kBmm, ""});
  out.push_back({"projection of a batch of 8, 470 MAC/ns/core", "TS", "M", false, products_at(470),
                 model_ns(products_only(MatmulForm::kProjection, 8)), kBmm, ""});
  out.push_back(
      {"batch outermost against default order, up to 8.3 x", "TS", "M", true, 8.3,
       model_ns(products_only(MatmulForm::kBatchDefaultOrder, 8)) / model_ns(products_only(MatmulForm::kFull, 8)), kBmm,
       "a ratio"});
  out.push_back({"Granite gate and up, 512 x 4096 x 12800, older stack: 0.96 ms", "AH", "M", true, 0.96e6,
                 model_ns(matmul(512, 4096, 12800)), kMatmul,
                 "torch-spyre of that time took 3.16 ms, which is no claim of what the card can do"});
  const double direct = model_ns(matmul(512, 4096, 4096));
  out.push_back({"weight restickified before each product, 512 x 4096 x 4096: 3.5 x", "SI", "M", true, 3.5,
                 (direct + model_ns(restickify(int64_t{2} * 4096 * 4096))) / direct, kMatmul,
                 "a ratio: F.linear against the transposed weight"});
}

void add_reductions(std::vector<Anchor>& out) {
  const int64_t bytes = 64 * kMega;
  out.push_back({"reduction of few rows, 32 cores: 150 GB/s", "TS", "M", false, at_rate(bytes, 150),
                 model_ns(reduction(64, 32)), kReduce, ""});
  out.push_back({"reduction of many rows, 32 cores: 114 GB/s", "TS", "M", false, at_rate(bytes, 114),
                 model_ns(reduction(1 << 20, 32)), kReduce, ""});
  out.push_back({"the same on 8 cores: 0.54 of it", "TS", "M", false, at_rate(bytes, 114 * 0.54),
                 model_ns(reduction(1 << 20, 8)), kReduce, ""});
  out.push_back({"the same on 1 core: 0.11 of it", "TS", "M", false, at_rate(bytes, 114 * 0.11),
                 model_ns(reduction(1 << 20, 1)), kReduce, ""});
  out.push_back({"softmax 512 x 1024 on one core, stages in the scratchpad: 23.7 us", "TS", "M", true, 23.7e3,
                 model_ns(softmax(1)), kSoftmax, ""});
  out.push_back(
      {"the same, stages through memory: 32.5 us", "TS", "M", true, 32.5e3, model_ns(softmax(3)), kSoftmax,
       "taken as three readings (maximum, sum, quotient); which stages went through memory is not published"});
}

void add_transports(std::vector<Anchor>& out) {
  const int64_t bytes = 32 * kMega;
  out.push_back({"restickify, 116 GB/s", "TS", "M", false, at_rate(bytes, 116), model_ns(restickify(16 * kMega)),
                 kTransport, ""});
  out.push_back({"reduction outside of the stick, 113 GB/s", "TS", "M", false, at_rate(bytes, 113),
                 model_ns(transport(WorkKind::kOuterReduction)), kTransport, ""});
  out.push_back({"broadcast, 118 GB/s", "TS", "M", false, at_rate(bytes, 118),
                 model_ns(transport(WorkKind::kBroadcast)), kBroadcast, ""});
}

}  // namespace

bool Anchor::met() const {
  return std::abs(ratio() - 1) <= 2 * rms;
}

std::vector<Anchor> anchors() {
  std::vector<Anchor> all;
  add_memory(all);
  add_products(all);
  add_reductions(all);
  add_transports(all);
  return all;
}

}  // namespace spyre::device
