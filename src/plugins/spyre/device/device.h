// The software Spyre device: memory behind handles, transfers that count, and the execution of compiled programs.
//
// kHost runs host plans on the thread team. kChecked runs the card plan op by op on card extents with poisoned padding,
// on the calling thread; both give equal bits. kDl16 runs the card plan in the card's own 16-bit numbers
// (dl16_executor.h). One device per worker; all calls from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/team.h"
#include "nn/parameter.h"
#include "plugins/spyre/device/dl16_math.h"
#include "plugins/spyre/device/host_executor.h"
#include "plugins/spyre/device/memory.h"
#include "plugins/spyre/device/program.h"
#include "plugins/spyre/device/tensor.h"

namespace spyre::device {

enum class ExecutionMode : uint8_t { kHost, kChecked, kDl16 };

struct DeviceOptions {
  ExecutionMode mode = ExecutionMode::kHost;
  CpuFeatures features;  // capped: which kernels
  DotOrder bf16_order = DotOrder::kPair;
  int threads = 1;
  int64_t memory_bytes = kDeviceMemoryBytes;
  HostExecutorOptions executor;
  Dl16Settings dl16;  // of kDl16

  // Whether tensors lie in card stores.
  bool card_stores() const { return mode != ExecutionMode::kHost; }
};

struct TensorRequest {
  TensorSpec spec;
  HostForm form = HostForm::kRowMajor;
};

class SoftwareDevice {
 public:
  explicit SoftwareDevice(const DeviceOptions& options);
  ~SoftwareDevice();

  const DeviceOptions& options() const { return options_; }
  DotOrder order(DType dtype) const { return dtype == DType::kBF16 ? options_.bf16_order : DotOrder::kSequential; }

  // Zeroed logical elements; in card stores every byte is poison until it is written (NaN for floats, -1 for i32).
  DeviceTensor allocate(const TensorSpec& spec, const std::string& label, HostForm form = HostForm::kRowMajor);
  // Tensors that live together, such as a model's weights: one block of memory, so that small ones lie on huge pages as
  // well. Card stores each have their own.
  std::vector<DeviceTensor> allocate_together(std::span<const TensorRequest> requests, const std::string& label);
  // The first entries of |whole| as a tensor of |spec|: both lie by entry (entry_layout.h), and share their memory.
  DeviceTensor beginning_of(const DeviceTensor& whole, const TensorSpec& spec);
  // The KV caches of a model's layers. A spec is that of one layer's K, and of its V (attention/kv_layout.h). In DL16
  // mode they are zeroed, as the card's are: masked keys are multiplied there by what exp leaves of them.
  std::vector<DeviceTensor> allocate_kv(std::span<const TensorSpec> layers, int64_t num_blocks, int64_t block_size);
  // A row-major view of a table whose elements are the transpose of |panels| (a tied embedding): charged on the card as
  // a table of its own, free on the host.
  DeviceTensor share_transposed(const TensorSpec& spec, const DeviceTensor& panels, const std::string& label);

  // Host to device. |from| has the logical shape; strided views are fine. |rows| > 0 limits the transfer to the first
  // rows of dimension 0.
  void upload(const DeviceTensor& to, const nn::HostTensor& from, const std::string& label, int64_t rows = 0);
  void upload(const DeviceTensor& to, const void* row_major, const std::string& label, int64_t rows = 0);
  // A slice of an upload: |from| has the logical shape but for dimension |dim|, where it is the part from |first| on.
  // Called by any thread; slices must not overlap. Not counted: count_upload() counts the whole, once. kHost only.
  // REQUIRES: |dim| is 0 of a row-major store (and |from| has no strides), or the columns of panels.
  void upload_slice(const DeviceTensor& to, const nn::HostTensor& from, int dim, int64_t first);
  // An upload of a table that only the card's programs read, where no card program runs: counted, not made.
  void count_upload(const DeviceTensor& to, const std::string& label, int64_t rows = 0);
  // Device to host, as row-major logical elements converted to fp32: the first |rows| of dimension 0 (0 = all).
  void download(const DeviceTensor& from, float* to, const std::string& label, int64_t rows = 0);

  // Runs programs in order, as one parallel region. |rows| is the number of live rows of each launch.
  void run(std::span<const Launch* const> launches, std::span<const int64_t> rows, const attention::StepTables* tables);
  // One program.
  void run(const Launch& launch, int64_t rows, const attention::StepTables* tables);
  // Takes the memory that runs of these programs need, so that none of them has to: part of warm-up.
  void prepare(std::span<const Launch> launches);

  // Whole KV blocks, device to device.
  void copy_kv_block(const DeviceTensor& kv, int32_t from, int32_t to);
  void zero_kv_block(const DeviceTensor& kv, int32_t block);

  // The first of the rows [begin, rows) of dimension 0 that holds an infinity or a NaN, or -1. A check of the device's
  // own state: nothing is transferred.
  int64_t first_nonfinite_row(const DeviceTensor& tensor, int64_t rows, int64_t begin = 0) const;

  TransferCounters& transfers() { return transfers_; }
  const TransferCounters& transfers() const { return transfers_; }
  const DeviceMemory& memory() const { return memory_; }
  ThreadTeam& team() { return *team_; }
  int64_t steps_run() const { return steps_run_; }

 private:
  void mark_card(TensorStore& store) const;  // as the mode has it
  DeviceTensor make_store(const TensorSpec& spec, const std::string& label, HostForm form);
  void run_card(const Launch& launch, int64_t rows, const attention::StepTables* tables);

  DeviceOptions options_;
  DeviceMemory memory_;
  TransferCounters transfers_;
  std::unique_ptr<ThreadTeam> team_;
  HostExecutor executor_;
  int64_t steps_run_ = 0;
};

}  // namespace spyre::device
