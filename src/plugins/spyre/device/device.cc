#include "plugins/spyre/device/device.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "plugins/spyre/device/card_transfer.h"
#include "plugins/spyre/device/checked_executor.h"
#include "plugins/spyre/device/dl16_executor.h"
#include "plugins/spyre/device/entry_layout.h"
#include "plugins/spyre/device/transfer.h"
#include "plugins/spyre/kernels/kv_pages.h"
#include "plugins/spyre/kernels/panels.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::device {

SoftwareDevice::SoftwareDevice(const DeviceOptions& options)
    : options_(options),
      memory_(options.memory_bytes),
      team_(std::make_unique<ThreadTeam>(options.threads)),
      executor_(*team_, options.executor) {}

SoftwareDevice::~SoftwareDevice() = default;

namespace {

size_t host_bytes(const TensorStore& store) {
  if (is_row_major(store.form)) {
    return static_cast<size_t>(store.spec.logical_elements()) * size_of(store.spec.dtype);
  }
  const std::vector<int64_t> shape = store.spec.logical();
  SPYRE_CHECK(shape.size() == 2, "panels of rank {}", shape.size());
  const bool out_in = store.form == HostForm::kPanelsOutIn;
  return static_cast<size_t>(
      kernels::PanelLayout{store.order, out_in ? shape[1] : shape[0], out_in ? shape[0] : shape[1]}.bytes());
}

}  // namespace

void SoftwareDevice::mark_card(TensorStore& store) const {
  store.card = options_.card_stores();
  if (options_.mode == ExecutionMode::kDl16) store.conversion.dl16 = options_.dl16.rules;
}

// Everything but the memory.
DeviceTensor SoftwareDevice::make_store(const TensorSpec& spec, const std::string& label, HostForm form) {
  auto store = std::make_shared<TensorStore>();
  store->spec = spec;
  store->label = label;
  store->form = form;
  store->order = order(spec.dtype);
  const auto address = memory_.reserve(spec.card_bytes(), label);
  store->card_address = *address;
  store->reservation = address;
  mark_card(*store);
  return store;
}

DeviceTensor SoftwareDevice::allocate(const TensorSpec& spec, const std::string& label, HostForm form) {
  DeviceTensor store = make_store(spec, label, form);
  store->memory = HostBuffer(store->card ? static_cast<size_t>(spec.card_bytes()) : host_bytes(*store));
  if (store->card) poison(*store);
  return store;
}

std::vector<DeviceTensor> SoftwareDevice::allocate_together(std::span<const TensorRequest> requests,
                                                            const std::string& label) {
  std::vector<DeviceTensor> stores;
  if (options_.card_stores()) {
    for (const TensorRequest& request : requests) stores.push_back(allocate(request.spec, label, request.form));
    return stores;
  }
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (const TensorRequest& request : requests) {
    stores.push_back(make_store(request.spec, label, request.form));
    offsets.push_back(bytes);
    bytes += static_cast<size_t>(round_up(static_cast<int64_t>(host_bytes(*stores.back())), kStickBytes));
  }
  const auto whole = std::make_shared<const HostBuffer>(bytes);
  for (size_t i = 0; i < stores.size(); ++i) stores[i]->memory = HostBuffer(whole, offsets[i], host_bytes(*stores[i]));
  return stores;
}

DeviceTensor SoftwareDevice::beginning_of(const DeviceTensor& whole, const TensorSpec& spec) {
  TensorSpec shorter = whole->spec;
  shorter.axes.at(0) = spec.axes.at(0);
  shorter.layout = entry_layout(spec.dtype, shorter.card());
  const bool fits = shorter == spec && spec.axes[0].card() <= whole->spec.axes[0].card() &&
                    whole->spec.layout == entry_layout(whole->spec.dtype, whole->spec.card());
  SPYRE_CHECK(fits && is_row_major(whole->form), "{} is not the beginning of {}", spec.layout.to_string(),
              whole->spec.layout.to_string());
  auto store = std::make_shared<TensorStore>();
  store->spec = spec;
  store->label = whole->label;
  store->form = whole->form;
  store->order = whole->order;
  mark_card(*store);
  const size_t bytes = store->card ? static_cast<size_t>(spec.card_bytes()) : host_bytes(*store);
  store->memory = HostBuffer(std::shared_ptr<const HostBuffer>(whole, &whole->memory), 0, bytes);
  store->card_address = whole->card_address;
  store->reservation = whole->reservation;
  return store;
}

std::vector<DeviceTensor> SoftwareDevice::allocate_kv(std::span<const TensorSpec> layers, int64_t num_blocks,
                                                      int64_t block_size) {
  std::vector<DeviceTensor> stores;
  int64_t block_bytes = 0;  // of all layers, on the host
  for (const TensorSpec& spec : layers) {
    auto store = std::make_shared<TensorStore>();
    store->spec = spec;
    store->label = "kv";
    store->form = HostForm::kKvPages;
    store->order = order(spec.dtype);
    store->num_blocks = num_blocks;
    store->block_size = block_size;
    const auto address = memory_.reserve(2 * spec.card_bytes(), "kv");  // K, then V
    store->card_address = *address;
    store->reservation = address;
    mark_card(*store);
    if (store->card) {
      store->memory = HostBuffer(static_cast<size_t>(2 * spec.card_bytes()));
      if (options_.mode == ExecutionMode::kChecked) poison(*store);
    } else {
      const std::vector<int64_t> shape = spec.logical();
      store->page_stride = block_bytes;  // where the layer begins inside a block, until the buffer is there
      block_bytes +=
          round_up(kernels::KvPageLayout(spec.dtype, store->order, block_size, shape[1], shape.back()).page_bytes(),
                   kStickBytes);
    }
    stores.push_back(std::move(store));
  }
  if (options_.card_stores()) return stores;
  const auto buffer = std::make_shared<HostBuffer>(static_cast<size_t>(num_blocks * block_bytes));
  for (const DeviceTensor& store : stores) {
    store->page_memory = buffer;
    store->pages = buffer->data() + store->page_stride;
    store->page_stride = block_bytes;
  }
  return stores;
}

DeviceTensor SoftwareDevice::share_transposed(const TensorSpec& spec, const DeviceTensor& panels,
                                              const std::string& label) {
  if (options_.card_stores()) throw_error(ErrorCode::kInternal, "card stores share no storage");
  auto store = std::make_shared<TensorStore>();
  store->spec = spec;
  store->label = label;
  const auto address = memory_.reserve(spec.card_bytes(), label);
  store->card_address = *address;
  store->reservation = address;
  store->twin = panels;
  return store;
}

namespace {

// A transfer of the first |rows| of dimension 0 (0 = all).
void count(TransferTotals& totals, const TensorSpec& spec, int64_t rows) {
  int64_t elements = spec.logical_elements();
  if (rows > 0 && !spec.axes.empty()) elements = elements / spec.axes[0].logical() * rows;
  ++totals.count;
  totals.card_bytes += transfer_card_bytes(spec, rows);
  totals.logical_bytes += elements * static_cast<int64_t>(size_of(spec.dtype));
}

}  // namespace

void SoftwareDevice::upload(const DeviceTensor& to, const nn::HostTensor& from, const std::string& label,
                            int64_t rows) {
  SPYRE_CHECK(from.dtype == to->spec.dtype, "{}: {} to {}", label, to_string(from.dtype), to_string(to->spec.dtype));
  write_store(*to, from.data.get(), from.strides, rows);
  count(transfers_.to_device[label], to->spec, rows);
}

void SoftwareDevice::upload(const DeviceTensor& to, const void* row_major, const std::string& label, int64_t rows) {
  write_store(*to, static_cast<const std::byte*>(row_major), {}, rows);
  count(transfers_.to_device[label], to->spec, rows);
}

void SoftwareDevice::upload_slice(const DeviceTensor& to, const nn::HostTensor& from, int dim, int64_t first) {
  SPYRE_CHECK(from.dtype == to->spec.dtype, "{}: {} to {}", to->label, to_string(from.dtype),
              to_string(to->spec.dtype));
  write_slice(*to, from.data.get(), from.shape, from.strides, dim, first);
}

void SoftwareDevice::count_upload(const DeviceTensor& to, const std::string& label, int64_t rows) {
  SPYRE_CHECK(options_.mode == ExecutionMode::kHost, "{} is read by card programs", label);
  count(transfers_.to_device[label], to->spec, rows);
}

namespace {

// A row of logits is 200 kB and more: from here on the team shares the copy.
constexpr int64_t kSharedCopyElements = int64_t{1} << 19;

// Elements of a transfer that is one copy of fp32 words; 0 where it is more than that.
int64_t plain_floats(const TensorStore& from, int64_t rows) {
  if (from.card || from.spec.dtype != DType::kF32 || !is_row_major(from.form) || from.spec.axes.empty()) return 0;
  const int64_t elements = from.spec.logical_elements();
  return rows > 0 ? elements / from.spec.axes[0].logical() * rows : elements;
}

}  // namespace

void SoftwareDevice::download(const DeviceTensor& from, float* to, const std::string& label, int64_t rows) {
  const int64_t floats = plain_floats(*from, rows);
  if (floats < kSharedCopyElements) {
    read_store(*from, to, rows);
  } else {
    const auto* source = reinterpret_cast<const float*>(from->memory.data());
    TeamLease lease(*team_);
    lease->run([&](int thread, int count) {
      const Range mine = split_range(floats, 16, thread, count);
      std::copy(source + mine.begin, source + mine.end, to + mine.begin);
    });
  }
  count(transfers_.to_host[label], from->spec, rows);
}

void SoftwareDevice::run(std::span<const Launch* const> launches, std::span<const int64_t> rows,
                         const attention::StepTables* tables) {
  SPYRE_CHECK(launches.size() == rows.size());
  if (options_.mode == ExecutionMode::kHost) {
    executor_.run(launches, rows, tables);
  } else {
    for (size_t i = 0; i < launches.size(); ++i) run_card(*launches[i], rows[i], tables);
  }
  ++steps_run_;
}

void SoftwareDevice::run(const Launch& launch, int64_t rows, const attention::StepTables* tables) {
  const Launch* one = &launch;
  run({&one, 1}, {&rows, 1}, tables);
}

void SoftwareDevice::run_card(const Launch& launch, int64_t rows, const attention::StepTables* tables) {
  TensorStore pool;
  pool.spec.dtype = DType::kF16;
  pool.memory = HostBuffer(static_cast<size_t>(launch.program->card.pool_bytes));
  poison(pool);
  ScopedFlushDenormals flush;
  if (options_.mode == ExecutionMode::kDl16) {
    run_dl16(launch, pool.memory.data(), rows, tables, options_.dl16);
  } else {
    run_checked(launch, pool.memory.data(), rows, tables, options_.bf16_order);
  }
}

namespace {

struct BlockRuns {
  size_t bytes = 0;
  std::vector<std::byte*> starts;
};

// The bytes of one block in each of the store's parts: one page on the host; on the card K, then V, whose blocks lie
// one after another in both layouts.
BlockRuns block_runs(const TensorStore& store, int32_t block) {
  SPYRE_CHECK(store.form == HostForm::kKvPages && block >= 0 && block < store.num_blocks, "block {} of {}", block,
              store.num_blocks);
  if (!store.card) {
    const std::vector<int64_t> shape = store.spec.logical();
    const kernels::KvPageLayout layout(store.spec.dtype, store.order, store.block_size, shape[1], shape.back());
    return {static_cast<size_t>(layout.page_bytes()), {store.pages + block * store.page_stride}};
  }
  const auto half = static_cast<size_t>(store.spec.card_bytes());
  const size_t bytes = half / static_cast<size_t>(store.num_blocks);
  std::byte* k = store.memory.data() + bytes * static_cast<size_t>(block);
  return {bytes, {k, k + half}};
}

}  // namespace

void SoftwareDevice::copy_kv_block(const DeviceTensor& kv, int32_t from, int32_t to) {
  const BlockRuns source = block_runs(*kv, from), target = block_runs(*kv, to);
  if (from == to) return;
  for (size_t i = 0; i < source.starts.size(); ++i) {
    std::memcpy(target.starts[i], source.starts[i], source.bytes);
  }
}

void SoftwareDevice::zero_kv_block(const DeviceTensor& kv, int32_t block) {
  const BlockRuns target = block_runs(*kv, block);
  for (std::byte* start : target.starts) std::memset(start, 0, target.bytes);
}

int64_t SoftwareDevice::first_nonfinite_row(const DeviceTensor& tensor, int64_t rows, int64_t begin) const {
  if (!is_16bit_float(tensor->spec.dtype)) return -1;
  const int64_t n = tensor->spec.logical_elements() / tensor->spec.axes.at(0).logical();
  if (!tensor->card) {
    const kernels::RowKernels& kernels = kernels::select_row_kernels(options_.features, tensor->spec.dtype);
    const auto* words = reinterpret_cast<const uint16_t*>(tensor->memory.data());
    for (int64_t row = begin; row < rows; ++row) {
      if (!kernels.all_finite(words + row * n, n)) return row;
    }
    return -1;
  }
  std::vector<float> values(static_cast<size_t>(rows * n));
  read_card(*tensor, values.data(), rows, false);
  for (int64_t row = begin; row < rows; ++row) {
    const auto first = values.begin() + row * n;
    if (!std::all_of(first, first + n, [](float x) { return std::isfinite(x); })) return row;
  }
  return -1;
}

void SoftwareDevice::prepare(std::span<const Launch> launches) {
  if (options_.card_stores()) return;
  for (const Launch& launch : launches) executor_.prepare(launch.program->host);
}

}  // namespace spyre::device
