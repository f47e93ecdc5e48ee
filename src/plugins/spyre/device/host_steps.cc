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

// y = rot x for each pair of elements, rot being [2, 2, half].
void multiply_2x2(DType dtype, const uint16_t* x, const uint16_t* rot, uint16_t* y, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float x0 = load_16bit(dtype, x[i]), x1 = load_16bit(dtype, x[half + i]);
    const auto r = [&](int64_t k) { return load_16bit(dtype, rot[k * half + i]); };
    y[i] = store_16bit(dtype, r(0) * x0 + r(1) * x1);
    y[half + i] = store_16bit(dtype, r(2) * x0 + r(3) * x1);
  }
}

}  // namespace

void HostStep::run_rows(const HostFrame&, Range) const {
  SPYRE_CHECK(false, "{} is not rowwise", describe());
}

void HostStep::run_columns(const HostFrame&, Range, std::span<const Range>) const {
  SPYRE_CHECK(false, "{} has no columns", describe());
}

void GemmStep::run(const HostFrame& frame, int thread, int threads) const {
  const int64_t m = rows.live(frame.rows);
  const bool by_rows = split_rows(m, n, threads);
  const Range columns = by_rows ? Range{0, n} : split_range(n, kColumnUnit, thread, threads);
  multiply(frame, by_rows ? split_range(m, kRowUnit, thread, threads) : Range{0, m}, {&columns, 1});
}

StepForm GemmStep::form() const {
  if (rows.per_row == 0 || !groups.single()) return {};
  StepForm form{.rowwise = true, .columns = rows.per_row == 1 ? n : 0, .unit = kColumnUnit, .cost = k};
  form.accesses = {
      {.slot = a.slot, .offset = a.offset, .row_stride = rows.stride * rows.per_row},
      {.slot = out.slot, .offset = out.offset, .row_stride = ldo * rows.per_row, .writes = true, .by_column = true}};
  return form;
}

void GemmStep::run_rows(const HostFrame& frame, Range live) const {
  const Range all{0, n};
  multiply(frame, {live.begin * rows.per_row, live.end * rows.per_row}, {&all, 1});
}

void GemmStep::run_columns(const HostFrame& frame, Range live, std::span<const Range> columns) const {
  multiply(frame, live, columns);
}

void GemmStep::multiply(const HostFrame& frame, Range m, std::span<const Range> columns) const {
  if (m.size() == 0 || columns[0].size() == 0) return;
  std::array<kernels::GemmRange, kMaxChains> more;
  for (size_t i = 1; i < columns.size(); ++i) more[i - 1] = {columns[i].begin, columns[i].size()};
  const size_t out_size = out_f32 ? sizeof(float) : sizeof(uint16_t);
  groups.each(frame.rows, {0, groups.count(frame.rows)}, [&](const auto& offsets) {
    kernels::GemmCall call{
        .a = half_row(frame, a, offsets[0] + m.begin * rows.stride),
        .lda = rows.stride,
        .rows = m.size(),
        .panels = half_row(frame, panels, offsets[2]),
        .k = k,
        .out = frame.slots[out.slot] + (out.offset + offsets[1] + m.begin * ldo) * static_cast<int64_t>(out_size),
        .ldo = ldo,
        .store = out_f32 ? kernels::GemmStore::kF32 : kernels::GemmStore::kRounded16};
    call.first_column = columns[0].begin;
    call.columns = columns[0].size();
    call.more = more.data();
    call.more_count = std::ssize(columns) - 1;
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
  loop.each(frame.rows, mine, [&](const Offsets& offsets) { row(frame, offsets, n); });
}

StepForm RowStep::form() const {
  if (!loop.rowwise() || crosses_rows()) return {};
  StepForm form{.rowwise = true};
  const int64_t count = loop.lanes();
  if (count == 1 && elementwise()) {
    form.columns = n;
  } else if (count > 1 || (count == 1 && keeps_length())) {
    form.columns = count * n;
    form.unit = n;
  }
  const std::vector<Operand> all = operands();
  for (int o = 0; o < loop.operands(); ++o) {
    StepAccess access{.slot = all[o].place.slot,
                      .offset = all[o].place.offset,
                      .row_stride = loop.row_stride(o),
                      .writes = all[o].writes};
    const int64_t stride = count > 1 ? loop.lane_stride(o) : all[o].spread ? 0 : n;
    access.by_column = form.columns > 0 && stride == n;
    // A lane is a slice of a row, or the row has one thing for all of its lanes.
    if (!access.by_column && (access.writes || stride != 0)) form.columns = 0;
    form.accesses.push_back(access);
  }
  return form;
}

void RowStep::run_rows(const HostFrame& frame, Range rows) const {
  const int64_t count = loop.lanes();
  if (count == 0) {
    const Range mine{rows.begin * loop.per_row(), rows.end * loop.per_row()};
    loop.each(frame.rows, mine, [&](const Offsets& offsets) { row(frame, offsets, n); });
    return;
  }
  Offsets offsets{};
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    for (int o = 0; o < loop.operands(); ++o) offsets[o] = r * loop.row_stride(o);
    lanes(frame, offsets, count);
  }
}

void RowStep::run_columns(const HostFrame& frame, Range rows, std::span<const Range> columns) const {
  const bool slices = loop.lanes() == 1 && elementwise();
  Offsets offsets{};
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    for (const Range& range : columns) {
      for (int o = 0; o < loop.operands(); ++o) {
        const int64_t shift = slices ? range.begin : range.begin / n * loop.lane_stride(o);
        offsets[o] = r * loop.row_stride(o) + shift;
      }
      if (slices) {
        row(frame, offsets, range.size());
      } else {
        lanes(frame, offsets, range.size() / n);
      }
    }
  }
}

void RowStep::lanes(const HostFrame& frame, Offsets offsets, int64_t count) const {
  for (int64_t l = 0; l < count; ++l) {
    row(frame, offsets, n);
    for (int o = 0; o < loop.operands(); ++o) offsets[o] += loop.lane_stride(o);
  }
}

void UnaryStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  kernels->unary(op, half_row(frame, x, o[1]), mutable_row(frame, out, o[0]), length);
}
std::string UnaryStep::describe() const {
  return fmt::format("unary #{} n={}", static_cast<int>(op), n);
}

void BinaryStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  const uint16_t* left = half_row(frame, a, o[1]);
  const uint16_t* right = half_row(frame, b, o[2]);
  uint16_t* y = mutable_row(frame, out, o[0]);
  if (a_single) {
    auto* spread = reinterpret_cast<uint16_t*>(frame.scratch);
    std::fill_n(spread, length, *left);
    left = spread;
  }
  if (b_single) {
    kernels->binary_scalar(op, left, load_16bit(kernels->dtype, *right), y, length);
  } else {
    kernels->binary(op, left, right, y, length);
  }
}
std::string BinaryStep::describe() const {
  return fmt::format("binary #{} n={}", static_cast<int>(op), n);
}

void ScalarStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  kernels->binary_scalar(op, half_row(frame, x, o[1]), value, mutable_row(frame, out, o[0]), length);
}
std::string ScalarStep::describe() const {
  return fmt::format("scalar #{} {} n={}", static_cast<int>(op), value, n);
}

void ActivateMulStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  kernels->activate_mul(op, half_row(frame, gate, o[1]), half_row(frame, up, o[2]), mutable_row(frame, out, o[0]),
                        length);
}
std::string ActivateMulStep::describe() const {
  return fmt::format("activate #{} and multiply n={}", static_cast<int>(op), n);
}

void RmsNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->rms_norm(half_row(frame, x, o[1]), half_row(frame, weight, 0), eps, mutable_row(frame, out, o[0]), n);
}
std::string RmsNormStep::describe() const {
  return fmt::format("rms_norm n={}", n);
}

void AddRmsNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->add_rms_norm(half_row(frame, x, o[1]), half_row(frame, residual, o[2]), half_row(frame, weight, 0), eps,
                        mutable_row(frame, sum, o[3]), mutable_row(frame, out, o[0]), n);
}
std::string AddRmsNormStep::describe() const {
  return fmt::format("add and rms_norm n={}", n);
}

void WideRmsNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->rms_norm_wide(wide_row(frame, x, o[1]), half_row(frame, weight, 0), eps, mutable_row(frame, out, o[0]), n);
}
std::string WideRmsNormStep::describe() const {
  return fmt::format("rms_norm of f32 n={}", n);
}

void WideAddRmsNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->add_rms_norm_wide(half_row(frame, x, o[1]), wide_row(frame, residual, o[2]), half_row(frame, weight, 0), eps,
                             at<float>(frame, sum) + o[3], mutable_row(frame, out, o[0]), n);
}
std::string WideAddRmsNormStep::describe() const {
  return fmt::format("add to f32 and rms_norm n={}", n);
}

void LayerNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->layer_norm(half_row(frame, x, o[1]), half_row(frame, weight, 0), half_row(frame, bias, 0), eps,
                      mutable_row(frame, out, o[0]), n);
}
std::string LayerNormStep::describe() const {
  return fmt::format("layer_norm n={}", n);
}

void SoftmaxStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  kernels->softmax(half_row(frame, x, o[1]), mutable_row(frame, out, o[0]), n);
}
std::string SoftmaxStep::describe() const {
  return fmt::format("softmax n={}", n);
}

void ReduceStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  const uint16_t* from = half_row(frame, x, o[1]);
  if (stride != 1) {
    auto* gathered = reinterpret_cast<uint16_t*>(frame.scratch);
    for (int64_t i = 0; i < n; ++i) gathered[i] = from[i * stride];
    from = gathered;
  }
  *mutable_row(frame, out, o[0]) = kernels->reduce(op, from, n);
}
std::string ReduceStep::describe() const {
  return fmt::format("reduce #{} n={}", static_cast<int>(op), n);
}

void RotateStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  lanes(frame, o, 1);
}

// The heads of a token share its rotation. [[c, -s], [s, c]] is what a rotary cache holds, and what the kernel takes.
void RotateStep::lanes(const HostFrame& frame, Offsets o, int64_t count) const {
  const int64_t half = n / 2;
  const uint16_t* rot = half_row(frame, rotation, o[2]);
  int64_t other = std::memcmp(rot, rot + 3 * half, static_cast<size_t>(half) * 2);
  for (int64_t i = 0; i < half; ++i) other |= (rot[half + i] ^ 0x8000) ^ rot[2 * half + i];
  for (int64_t l = 0; l < count; ++l) {
    if (other == 0) {
      kernels->rotate_half(half_row(frame, x, o[1]), rot, rot + 2 * half, mutable_row(frame, out, o[0]), n);
    } else {
      multiply_2x2(kernels->dtype, half_row(frame, x, o[1]), rot, mutable_row(frame, out, o[0]), half);
    }
    if (l + 1 == count) return;
    o[0] += loop.lane_stride(0);
    o[1] += loop.lane_stride(1);
  }
}
std::string RotateStep::describe() const {
  return fmt::format("rotate 2x2 d={}", n);
}

void RotaryStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
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

void CopyStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  const size_t from_size = size_of(from), to_size = size_of(to);
  const std::byte* source = frame.slots[x.slot] + static_cast<size_t>(x.offset + o[1]) * from_size;
  std::byte* target = frame.slots[out.slot] + static_cast<size_t>(out.offset + o[0]) * to_size;
  if (from == to && x_stride == 1 && out_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(length) * to_size);
  } else if (from == to) {
    for (int64_t i = 0; i < length; ++i) {
      std::memcpy(target + static_cast<size_t>(i * out_stride) * to_size,
                  source + static_cast<size_t>(i * x_stride) * from_size, to_size);
    }
  } else if (kernels != nullptr && x_stride == 1 && out_stride == 1) {
    if (to == DType::kF32) {
      kernels->to_f32(reinterpret_cast<const uint16_t*>(source), reinterpret_cast<float*>(target), length);
    } else {
      kernels->from_f32(reinterpret_cast<const float*>(source), reinterpret_cast<uint16_t*>(target), length);
    }
  } else {
    for (int64_t i = 0; i < length; ++i) {
      store_any(to, target + static_cast<size_t>(i * out_stride) * to_size,
                load_any(from, source + static_cast<size_t>(i * x_stride) * from_size));
    }
  }
}
std::string CopyStep::describe() const {
  return fmt::format("copy {} -> {} n={}", to_string(from), to_string(to), n);
}

void GatherStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
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

void Fp32RmsNormStep::row(const HostFrame& frame, const Offsets& o, int64_t) const {
  rms_norm_row(DType::kF32, wide_row(frame, x, o[1]), wide_row(frame, weight, 0), eps, at<float>(frame, out) + o[0], n);
}
std::string Fp32RmsNormStep::describe() const {
  return fmt::format("fp32 rms_norm n={}", n);
}

void Fp32Step::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  const float* left = word<float>(frame, a, o[1]);
  const float* right = b.slot < 0 ? left : word<float>(frame, b, o[2]);
  float* y = at<float>(frame, out) + o[0];
  for (int64_t i = 0; i < length; ++i) y[i] = function(left[i * a_step], right[i * b_step]);
}
std::vector<RowStep::Operand> Fp32Step::operands() const {
  if (b.slot < 0) return {{out, true}, {a}};
  return {{out, true}, {a}, {b}};
}
std::string Fp32Step::describe() const {
  return fmt::format("fp32 {} n={}", name, n);
}

void Fp32ScalarStep::row(const HostFrame& frame, const Offsets& o, int64_t length) const {
  const float* from = wide_row(frame, x, o[1]);
  float* y = at<float>(frame, out) + o[0];
  if (adds) {
    for (int64_t i = 0; i < length; ++i) y[i] = from[i * x_step] + value;
  } else {
    for (int64_t i = 0; i < length; ++i) y[i] = from[i * x_step] * value;
  }
}
std::string Fp32ScalarStep::describe() const {
  return fmt::format("fp32 {} {} n={}", adds ? "offset" : "scale", value, n);
}

}  // namespace spyre::device
