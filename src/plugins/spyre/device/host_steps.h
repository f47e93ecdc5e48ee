// The steps that host plans are made of. Each calls one kernel per row (or a GEMM per group of rows) and divides its
// rows, or its columns, among the threads of the team. Attention's own steps are in attention/.
#pragma once

#include <memory>
#include <string>

#include "plugins/spyre/device/host_loop.h"
#include "plugins/spyre/device/host_plan.h"
#include "plugins/spyre/kernels/kernel_table.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::device {

// out[..., M, N] = a[..., M, K] x panels. Groups are the loop's iterations (operands: a, out, panels); inside a group M
// rows of stride |lda| are multiplied. Columns are dealt out in 16s, or rows where there are too few columns.
struct GemmStep final : HostStep {
  const kernels::GemmKernels* kernels = nullptr;
  HostPlace a, panels, out;
  RowLoop groups;
  HostDim rows;  // M: stride is lda
  int64_t ldo = 0;
  int64_t k = 0, n = 0;
  bool out_f32 = false;

  void run(const HostFrame& frame, int thread, int threads) const override;
  StepForm form() const override;
  void run_rows(const HostFrame& frame, Range rows) const override;
  void run_columns(const HostFrame& frame, Range rows, std::span<const Range> columns) const override;
  std::string describe() const override;

 private:
  // Rows [m.begin, m.end) of the product, of each group.
  void multiply(const HostFrame& frame, Range m, std::span<const Range> columns) const;
};

// Packs a computed [..., K, N] operand into panels in the arena. Loop operands: source, panels.
struct PackStep final : HostStep {
  DotOrder order = DotOrder::kSequential;
  HostPlace source, panels;
  RowLoop groups;
  int64_t k = 0, n = 0;
  int64_t k_stride = 0, n_stride = 0;  // one of them is 1

  void run(const HostFrame& frame, int thread, int threads) const override;
  std::string describe() const override;
};

// One kernel call per row of |n| elements, where "row" is one iteration of the loop: a token's row, or one of its
// heads. Operand 0 of the loop is the result.
struct RowStep : HostStep {
  const kernels::RowKernels* kernels = nullptr;
  RowLoop loop;
  int64_t n = 0;
  HostPlace out;

  void run(const HostFrame& frame, int thread, int threads) const final;
  StepForm form() const final;
  void run_rows(const HostFrame& frame, Range rows) const final;
  void run_columns(const HostFrame& frame, Range rows, std::span<const Range> columns) const final;

 protected:
  using Offsets = std::array<int64_t, kMaxOperands>;
  struct Operand {
    HostPlace place;
    bool writes = false;
    bool spread = false;  // of another length: goes into all of the result's row
  };
  // The operands that the loop walks, in its order.
  virtual std::vector<Operand> operands() const = 0;
  // Whether element i of the result depends on element i of each operand only: then |length| may be less than n.
  virtual bool elementwise() const { return false; }
  // Whether the result's row is as long as that of each operand that is not spread: a row is then a lane, like one of
  // many heads, even where there is only one.
  virtual bool keeps_length() const { return false; }
  // Whether a row of the result depends on other rows.
  virtual bool crosses_rows() const { return false; }
  virtual void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const = 0;
  // |count| rows that are the loop's strides apart.
  virtual void lanes(const HostFrame& frame, Offsets offsets, int64_t count) const;
};

struct UnaryStep final : RowStep {  // operands: out, x
  kernels::UnaryOp op{};
  HostPlace x;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  bool elementwise() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// Operands: out, a, b. An operand whose last extent is 1 is spread over the row.
struct BinaryStep final : RowStep {
  kernels::BinaryOp op{};
  HostPlace a, b;
  bool a_single = false, b_single = false;
  std::vector<Operand> operands() const override { return {{out, true}, {a}, {b}}; }
  bool elementwise() const override { return !a_single && !b_single; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
  size_t scratch_bytes() const override { return a_single ? static_cast<size_t>(n) * 2 : 0; }
};

struct ScalarStep final : RowStep {  // operands: out, x; y = op(x, value)
  kernels::BinaryOp op{};
  HostPlace x;
  float value = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  bool elementwise() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct ActivateMulStep final : RowStep {  // operands: out, gate, up
  kernels::UnaryOp op{};
  HostPlace gate, up;
  std::vector<Operand> operands() const override { return {{out, true}, {gate}, {up}}; }
  bool elementwise() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct RmsNormStep final : RowStep {  // operands: out, x
  HostPlace x, weight;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  bool keeps_length() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct AddRmsNormStep final : RowStep {  // operands: out, x, residual, sum
  HostPlace x, residual, sum, weight;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}, {residual}, {sum, true}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// The same over a residual stream in fp32: x (of the first), residual and sum are rows of floats.
struct WideRmsNormStep final : RowStep {  // operands: out, x
  HostPlace x, weight;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct WideAddRmsNormStep final : RowStep {  // operands: out, x, residual, sum
  HostPlace x, residual, sum, weight;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}, {residual}, {sum, true}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct LayerNormStep final : RowStep {  // operands: out, x
  HostPlace x, weight, bias;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

struct SoftmaxStep final : RowStep {  // operands: out, x
  HostPlace x;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// Operands: out (one element), x. Elements of x are |stride| apart.
struct ReduceStep final : RowStep {
  kernels::ReduceOp op{};
  HostPlace x;
  int64_t stride = 1;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
  size_t scratch_bytes() const override { return stride == 1 ? 0 : static_cast<size_t>(n) * 2; }
};

// Operands: out, x, rotation. One iteration is one head: rotation is the row's [2, 2, D/2].
struct RotateStep final : RowStep {
  HostPlace x, rotation;
  std::vector<Operand> operands() const override { return {{out, true}, {x}, {rotation, false, true}}; }
  bool keeps_length() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  void lanes(const HostFrame& frame, Offsets offsets, int64_t count) const override;
  std::string describe() const override;
};

// rotary(x, cos_sin): operands: out, x, cos_sin [D].
struct RotaryStep final : RowStep {
  HostPlace x, cos_sin;
  std::vector<Operand> operands() const override { return {{out, true}, {x}, {cos_sin, false, true}}; }
  bool keeps_length() const override { return true; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// Rows of elements of any dtype from one place to another, converting. Operands: out, x; elements |x_stride| apart
// (0 = one element spread over the row). |kernels|, where there are any, convert between fp32 and their dtype.
struct CopyStep final : RowStep {
  HostPlace x;
  DType from = DType::kF16, to = DType::kF16;
  int64_t x_stride = 1, out_stride = 1;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  bool elementwise() const override { return x_stride == 1 && out_stride == 1; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// out[i, :] = table[ids[i], :]. Operands: out, ids. The table may be the transpose of panels. Throws kInvalidArgument
// for an id out of range.
struct GatherStep final : RowStep {
  HostPlace ids;
  HostPlace table;
  int64_t table_rows = 0;
  size_t element_bytes = 2;
  bool table_computed = false;  // by this plan
  std::vector<Operand> operands() const override { return {{out, true}, {ids}}; }
  bool crosses_rows() const override { return table_computed; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// rms_norm whose operands and result are fp32, by the scalar definition. Operands: out, x.
struct Fp32RmsNormStep final : RowStep {
  HostPlace x, weight;
  float eps = 0;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// An elementwise operator on fp32 rows, by the scalar definitions. Operands: out, a, b (b unused for a unary one).
// |a_step| and |b_step| are 0 where an operand is spread over the row.
struct Fp32Step final : RowStep {
  float (*function)(float a, float b) = nullptr;
  const char* name = "";
  HostPlace a, b;
  int64_t a_step = 1, b_step = 1;
  std::vector<Operand> operands() const override;
  bool elementwise() const override { return a_step == 1 && (b.slot < 0 || b_step == 1); }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

// x * value, or x + value, on fp32 rows. Operands: out, x.
struct Fp32ScalarStep final : RowStep {
  bool adds = false;
  float value = 0;
  HostPlace x;
  int64_t x_step = 1;
  std::vector<Operand> operands() const override { return {{out, true}, {x}}; }
  bool elementwise() const override { return x_step == 1; }
  void row(const HostFrame& frame, const Offsets& offsets, int64_t length) const override;
  std::string describe() const override;
};

}  // namespace spyre::device
