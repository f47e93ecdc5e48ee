#include "plugins/spyre/device/host_steps.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/vector_math.h"
#include "plugins/spyre/device/tensor.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::device {
namespace {

// Columns are dealt out in the kernels' granularity. One unit of rows is what a register tile holds.
constexpr int64_t kColumnUnit = 16;
constexpr int64_t kRowUnit = 6;

bool split_rows(int64_t rows, int64_t n, int threads) {
  const int64_t column_units = (n + kColumnUnit - 1) / kColumnUnit;
  return column_units < 2 * threads && rows >= kRowUnit * threads;
}

template <typename Word>
const Word* word(const HostFrame& frame, HostPlace place, int64_t offset) {
  return at<const Word>(frame, place) + offset;
}
const uint16_t* half_row(const HostFrame& frame, HostPlace place, int64_t offset) {
  return word<uint16_t>(frame, place, offset);
}
const float* wide_row(const HostFrame& frame, HostPlace place, int64_t offset) {
  return word<float>(frame, place, offset);
}
uint16_t* mutable_row(const HostFrame& frame, HostPlace place, int64_t offset) {
  return at<uint16_t>(frame, place) + offset;
}

}  // namespace

void GemmStep::run(const HostFrame& frame, int thread, int threads) const {
  const int64_t m = rows.live(frame.rows);
  if (m == 0) return;
  const bool by_rows = split_rows(m, n, threads);
  const Range row_range = by_rows ? split_range(m, kRowUnit, thread, threads) : Range{0, m};
  const Range columns = by_rows ? Range{0, n} : split_range(n, kColumnUnit, thread, threads);
  if (row_range.size() == 0 || columns.size() == 0) return;
  const size_t out_size = out_f32 ? sizeof(float) : sizeof(uint16_t);
  groups.each(frame.rows, {0, groups.count(frame.rows)}, [&](const auto& offsets) {
    kernels::GemmCall call{
        .a = half_row(frame, a, offsets[0] + row_range.begin * rows.stride),
        .lda = rows.stride,
        .rows = row_range.size(),
        .panels = half_row(frame, panels, offsets[2]),
        .k = k,
        .first_column = columns.begin,
        .columns = columns.size(),
        .out = frame.slots[out.slot] + static_cast<size_t>(out.offset + offsets[1] + row_range.begin * ldo) * out_size,
        .ldo = ldo,
        .store = out_f32 ? kernels::GemmStore::kF32 : kernels::GemmStore::kRounded16};
    kernels->gemm(call);
  });
}

std::string GemmStep::describe() const {
  return fmt::format("gemm {} k={} n={}{}", kernels->name, k, n, out_f32 ? " -> f32" : "");
}

void PackStep::run(const HostFrame& frame, int thread, int threads) const {
  const kernels::PanelLayout layout{order, k, n};
  const Range columns = split_range(n, kernels::kPanelColumns, thread, threads);
  if (columns.size() == 0) return;
  const bool in_out = n_stride == 1;
  groups.each(frame.rows, {0, groups.count(frame.rows)}, [&](const auto& offsets) {
    const uint16_t* from = half_row(frame, source, offsets[0] + columns.begin * n_stride);
    kernels::pack_panels(layout, in_out ? kernels::SourceOrder::kInOut : kernels::SourceOrder::kOutIn, from,
                         in_out ? k_stride : n_stride, columns.begin, columns.size(),
                         mutable_row(frame, panels, offsets[1]));
  });
}

std::string PackStep::describe() const {
  return fmt::format("pack panels k={} n={}", k, n);
}

void RowStep::run(const HostFrame& frame, int thread, int threads) const {
  const Range mine = split_range(loop.count(frame.rows), 1, thread, threads);
  std::byte* scratch = frame.scratch.empty() ? nullptr : frame.scratch[thread];
  loop.each(frame.rows, mine, [&](const Offsets& offsets) { row(frame, offsets, scratch); });
}

void UnaryStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->unary(op, half_row(frame, x, o[1]), mutable_row(frame, out, o[0]), n);
}
std::string UnaryStep::describe() const {
  return fmt::format("unary #{} n={}", static_cast<int>(op), n);
}

void BinaryStep::row(const HostFrame& frame, const Offsets& o, std::byte* scratch) const {
  const uint16_t* left = half_row(frame, a, o[1]);
  const uint16_t* right = half_row(frame, b, o[2]);
  uint16_t* y = mutable_row(frame, out, o[0]);
  if (a_single) {
    auto* spread = reinterpret_cast<uint16_t*>(scratch);
    std::fill_n(spread, n, *left);
    left = spread;
  }
  if (b_single) {
    kernels->binary_scalar(op, left, load_16bit(kernels->dtype, *right), y, n);
  } else {
    kernels->binary(op, left, right, y, n);
  }
}
std::string BinaryStep::describe() const {
  return fmt::format("binary #{} n={}", static_cast<int>(op), n);
}

void ScalarStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->binary_scalar(op, half_row(frame, x, o[1]), value, mutable_row(frame, out, o[0]), n);
}
std::string ScalarStep::describe() const {
  return fmt::format("scalar #{} {} n={}", static_cast<int>(op), value, n);
}

void ActivateMulStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->activate_mul(op, half_row(frame, gate, o[1]), half_row(frame, up, o[2]), mutable_row(frame, out, o[0]), n);
}
std::string ActivateMulStep::describe() const {
  return fmt::format("activate #{} and multiply n={}", static_cast<int>(op), n);
}

void RmsNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->rms_norm(half_row(frame, x, o[1]), half_row(frame, weight, 0), eps, mutable_row(frame, out, o[0]), n);
}
std::string RmsNormStep::describe() const {
  return fmt::format("rms_norm n={}", n);
}

void AddRmsNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->add_rms_norm(half_row(frame, x, o[1]), half_row(frame, residual, o[2]), half_row(frame, weight, 0), eps,
                        mutable_row(frame, sum, o[3]), mutable_row(frame, out, o[0]), n);
}
std::string AddRmsNormStep::describe() const {
  return fmt::format("add and rms_norm n={}", n);
}

void WideRmsNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->rms_norm_wide(wide_row(frame, x, o[1]), half_row(frame, weight, 0), eps, mutable_row(frame, out, o[0]), n);
}
std::string WideRmsNormStep::describe() const {
  return fmt::format("rms_norm of f32 n={}", n);
}

void WideAddRmsNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->add_rms_norm_wide(half_row(frame, x, o[1]), wide_row(frame, residual, o[2]), half_row(frame, weight, 0), eps,
                             at<float>(frame, sum) + o[3], mutable_row(frame, out, o[0]), n);
}
std::string WideAddRmsNormStep::describe() const {
  return fmt::format("add to f32 and rms_norm n={}", n);
}

void LayerNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->layer_norm(half_row(frame, x, o[1]), half_row(frame, weight, 0), half_row(frame, bias, 0), eps,
                      mutable_row(frame, out, o[0]), n);
}
std::string LayerNormStep::describe() const {
  return fmt::format("layer_norm n={}", n);
}

void SoftmaxStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  kernels->softmax(half_row(frame, x, o[1]), mutable_row(frame, out, o[0]), n);
}
std::string SoftmaxStep::describe() const {
  return fmt::format("softmax n={}", n);
}

void ReduceStep::row(const HostFrame& frame, const Offsets& o, std::byte* scratch) const {
  const uint16_t* from = half_row(frame, x, o[1]);
  if (stride != 1) {
    auto* gathered = reinterpret_cast<uint16_t*>(scratch);
    for (int64_t i = 0; i < n; ++i) gathered[i] = from[i * stride];
    from = gathered;
  }
  *mutable_row(frame, out, o[0]) = kernels->reduce(op, from, n);
}
std::string ReduceStep::describe() const {
  return fmt::format("reduce #{} n={}", static_cast<int>(op), n);
}

void RotateStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const int64_t half = n / 2;
  const uint16_t* rot = half_row(frame, rotation, o[2]);
  const uint16_t* head = half_row(frame, x, o[1]);
  uint16_t* y = mutable_row(frame, out, o[0]);
  // [[c, -s], [s, c]]: what a rotary cache holds, and what the kernel takes.
  bool is_rotation = std::memcmp(rot, rot + 3 * half, static_cast<size_t>(half) * 2) == 0;
  for (int64_t i = 0; is_rotation && i < half; ++i) is_rotation = (rot[half + i] ^ 0x8000) == rot[2 * half + i];
  if (is_rotation) return kernels->rotate_half(head, rot, rot + 2 * half, y, n);
  const DType dtype = kernels->dtype;
  for (int64_t i = 0; i < half; ++i) {
    const float x0 = load_16bit(dtype, head[i]), x1 = load_16bit(dtype, head[half + i]);
    const auto r = [&](int64_t k) { return load_16bit(dtype, rot[k * half + i]); };
    y[i] = store_16bit(dtype, r(0) * x0 + r(1) * x1);
    y[half + i] = store_16bit(dtype, r(2) * x0 + r(3) * x1);
  }
}
std::string RotateStep::describe() const {
  return fmt::format("rotate 2x2 d={}", n);
}

void RotaryStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const uint16_t* cos = half_row(frame, cos_sin, o[2]);
  kernels->rotate_half(half_row(frame, x, o[1]), cos, cos + n / 2, mutable_row(frame, out, o[0]), n);
}
std::string RotaryStep::describe() const {
  return fmt::format("rotary d={}", n);
}

namespace {

float load_any(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) return *reinterpret_cast<const float*>(at);
  return load_16bit(dtype, *reinterpret_cast<const uint16_t*>(at));
}

void store_any(DType dtype, std::byte* at, float x) {
  if (dtype == DType::kF32) {
    *reinterpret_cast<float*>(at) = x;
  } else {
    *reinterpret_cast<uint16_t*>(at) = store_16bit(dtype, x);
  }
}

}  // namespace

void CopyStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const size_t from_size = size_of(from), to_size = size_of(to);
  const std::byte* source = frame.slots[x.slot] + static_cast<size_t>(x.offset + o[1]) * from_size;
  std::byte* target = frame.slots[out.slot] + static_cast<size_t>(out.offset + o[0]) * to_size;
  if (from == to && x_stride == 1 && out_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(n) * to_size);
  } else if (from == to) {
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(target + static_cast<size_t>(i * out_stride) * to_size,
                  source + static_cast<size_t>(i * x_stride) * from_size, to_size);
    }
  } else if (kernels != nullptr && x_stride == 1 && out_stride == 1) {
    if (to == DType::kF32) {
      kernels->to_f32(reinterpret_cast<const uint16_t*>(source), reinterpret_cast<float*>(target), n);
    } else {
      kernels->from_f32(reinterpret_cast<const float*>(source), reinterpret_cast<uint16_t*>(target), n);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      store_any(to, target + static_cast<size_t>(i * out_stride) * to_size,
                load_any(from, source + static_cast<size_t>(i * x_stride) * from_size));
    }
  }
}
std::string CopyStep::describe() const {
  return fmt::format("copy {} -> {} n={}", to_string(from), to_string(to), n);
}

void GatherStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const int32_t id = *word<int32_t>(frame, ids, o[1]);
  if (id < 0 || id >= table_rows) {
    throw_error(ErrorCode::kInvalidArgument, "gather index {} is outside of the table's {} rows", id, table_rows);
  }
  std::byte* y = frame.slots[out.slot] + static_cast<size_t>(out.offset + o[0]) * element_bytes;
  const TensorStore* store = frame.stores[table.slot];  // none: a table that the program computes
  if (store == nullptr || store->twin == nullptr) {
    std::memcpy(y, frame.slots[table.slot] + static_cast<size_t>(table.offset + id * n) * element_bytes,
                static_cast<size_t>(n) * element_bytes);
    return;
  }
  // A tied table: row |id| is a column of the head's panels.
  const kernels::PanelLayout layout{store->twin->order, n, table_rows};
  const auto* panels = reinterpret_cast<const uint16_t*>(store->twin->memory.data());
  kernels::unpack_panels(layout, panels, id, 1, reinterpret_cast<uint16_t*>(y), 1);
}
std::string GatherStep::describe() const {
  return fmt::format("gather rows n={}", n);
}

void Fp32RmsNormStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  rms_norm_row(DType::kF32, wide_row(frame, x, o[1]), wide_row(frame, weight, 0), eps, at<float>(frame, out) + o[0], n);
}
std::string Fp32RmsNormStep::describe() const {
  return fmt::format("fp32 rms_norm n={}", n);
}

void Fp32Step::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const float* left = word<float>(frame, a, o[1]);
  const float* right = b.slot < 0 ? left : word<float>(frame, b, o[2]);
  float* y = at<float>(frame, out) + o[0];
  for (int64_t i = 0; i < n; ++i) y[i] = function(left[i * a_step], right[i * b_step]);
}
std::string Fp32Step::describe() const {
  return fmt::format("fp32 {} n={}", name, n);
}

void Fp32ScalarStep::row(const HostFrame& frame, const Offsets& o, std::byte*) const {
  const float* from = wide_row(frame, x, o[1]);
  float* y = at<float>(frame, out) + o[0];
  if (adds) {
    for (int64_t i = 0; i < n; ++i) y[i] = from[i * x_step] + value;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = from[i * x_step] * value;
  }
}
std::string Fp32ScalarStep::describe() const {
  return fmt::format("fp32 {} {} n={}", adds ? "offset" : "scale", value, n);
}

}  // namespace spyre::device
