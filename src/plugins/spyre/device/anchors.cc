#include "plugins/spyre/device/anchors.h"

#include <cmath>

#include "plugins/spyre/device/cost.h"

namespace spyre::device {
namespace {

constexpr int64_t kMega = 1 << 20;
// RMS errors; the middle where a range is given.
constexpr double kPointwise = 0.085, kReduce = 0.07, kBroadcast = 0.05, kTransport = 0.06, kShortTensor = 0.06,
                 kSoftmax = 0.21, kMatmul = 0.275, kBmm = 0.33;

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

// torch-spyre's rate of [rows, columns] times a scalar below 1024 rows and up to 4096 columns (fall of 2026; M). It
// falls to 57 GB/s at 64 rows: its rates of operands that broadcast are no part of this model, which does not tell them
// apart.
double short_scaling_gb_s(int64_t rows, int64_t columns) {
  const double r = std::log2(static_cast<double>(rows)), c = std::log2(static_cast<double>(columns));
  return -270 + 70 * r - 3.5 * r * r + 3 * c;
}

OpWork restickify(int64_t bytes) {
  return {.read_bytes = bytes, .write_bytes = bytes, .cores = 32, .kind = WorkKind::kRestickify};
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

// y = 2x of [256 x MB, 2048] in 16 bits, on all cores: two sources.
void add_scaling(std::vector<Anchor>& out) {
  constexpr std::string_view kTorchSpyre = "y = 2x of 1 MB, torch-spyre's surface of short tensors: 99 GB/s";
  struct Seen {
    std::string_view name;
    int64_t megabytes;
    double gb_s;
  };
  for (const Seen& seen :
       {Seen{"y = 2x of 1 MB, 66.0 GB/s", 1, 66.0}, Seen{"y = 2x of 2 MB, 108.3 GB/s", 2, 108.3},
        Seen{"y = 2x of 8 MB, 101.8 GB/s", 8, 101.8}, Seen{"y = 2x of 32 MB, 101.3 GB/s", 32, 101.3}}) {
    const int64_t bytes = seen.megabytes * kMega;
    out.push_back(
        {seen.name, "AH", "M", true, at_rate(2 * bytes, seen.gb_s), model_ns(pointwise(bytes)), kPointwise, ""});
    if (seen.megabytes != 1) continue;
    out.back().contradicted_by = kTorchSpyre;
    out.back().note =
        "no model meets both sources. A fixed cost of a kernel would have to be above 6.4 us for this one and below "
        "5.3 us for 2 MB, and torch-spyre's intercept is 0. Short requests (8 rows a core are runs of 1 KB) would "
        "explain it at 15.5 ns each, but torch-spyre's surface has 82 GB/s at 128 rows, where that gives 33";
  }
  for (const auto& [name, rows] : {std::pair{kTorchSpyre, int64_t{256}},
                                   std::pair{std::string_view("the same surface at 2 MB: 110 GB/s"), int64_t{512}}}) {
    const int64_t bytes = rows * 2048 * 2;
    out.push_back({name, "TS", "M", true, at_rate(2 * bytes, short_scaling_gb_s(rows, 2048)),
                   model_ns(pointwise(bytes)), kShortTensor, ""});
  }
}

void add_memory(std::vector<Anchor>& out) {
  const OpWork read{.read_bytes = 64 * kMega, .cores = 32};
  out.push_back({"one-way read, 150 GB/s", "TS", "M", false, at_rate(64 * kMega, 150), model_ns(read), kPointwise, ""});
  out.push_back({"balanced read and write, 105 GB/s", "TS", "M", false, at_rate(32 * kMega, 105),
                 model_ns(pointwise(16 * kMega)), kPointwise, ""});
  add_scaling(out);
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

bool irreconcilable(const Anchor& a, const Anchor& b) {
  const auto most = [](const Anchor& x) { return x.published_ns * (1 + 2 * x.rms); };
  const auto least = [](const Anchor& x) { return x.published_ns * (1 - 2 * x.rms); };
  return most(a) < least(b) || most(b) < least(a);
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
