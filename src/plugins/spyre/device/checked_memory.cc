#include "plugins/spyre/device/checked_memory.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/vector_math.h"
#include "plugins/spyre/device/card_transfer.h"
#include "plugins/spyre/device/restickify.h"

namespace spyre::device {

using graph::Array;
using graph::Type;

float load_word(DType dtype, const Conversion& conversion, uint16_t word) {
  return conversion.dl16 ? dl16_to_f32(word) : load_16bit(dtype, word);
}

uint16_t store_word(DType dtype, const Conversion& conversion, float x) {
  return conversion.dl16 ? f32_to_dl16(x, *conversion.dl16) : store_16bit(dtype, x);
}

CheckedMemory::CheckedMemory(const Launch& launch, std::byte* pool, int64_t live_rows, const Conversion& conversion)
    : launch_(launch),
      graph_(launch.program->graph),
      plan_(launch.program->card),
      pool_(pool),
      live_rows_(live_rows),
      conversion_(conversion) {}

Type CheckedMemory::live_type(graph::ValueId value) const {
  Type type = graph_.type(value);
  for (graph::Dim& dim : type.dims) {
    if (dim.rows) dim.extent = std::min(dim.extent, live_rows_);
  }
  return type;
}

TensorStore& CheckedMemory::state(int32_t b) const {
  SPYRE_CHECK(buffer(b).home == BufferHome::kState, "buffer {}", b);
  return *launch_.states[buffer(b).index];
}

CheckedMemory::Memory CheckedMemory::memory(int32_t b) const {
  const CardBuffer& root = buffer(b).view ? buffer(buffer(b).base) : buffer(b);
  const int64_t elements = root.spec.layout.device_elements();
  switch (root.home) {
    case BufferHome::kInput:
      return {launch_.inputs[root.index]->memory.data(), elements};
    case BufferHome::kParameter:
      return {launch_.parameters[root.index]->memory.data(), elements};
    case BufferHome::kOutput:
      return {launch_.outputs[root.index]->memory.data(), elements};
    case BufferHome::kPool:
      return {pool_ + root.pool_offset, elements};
    default:
      SPYRE_CHECK(false, "buffer {} has no memory of its own", b);
  }
  return {};
}

// visit(memory, first, steps, count): |count| logical elements of the last dimension at first + steps[i].
template <typename Visit>
void CheckedMemory::for_each_run(int32_t b, const Type& type, Visit&& visit) const {
  const CardBuffer& buffer = this->buffer(b);
  const Memory at = memory(b);
  const int rank = type.rank();
  std::vector<std::vector<int64_t>> steps;
  int64_t furthest = buffer.placement.offset;
  for (int d = 0; d < rank; ++d) {
    steps.push_back(buffer.placement.steps(d, buffer.spec.axes[d]));
    furthest += *std::max_element(steps[d].begin(), steps[d].end());
  }
  SPYRE_CHECK(furthest < at.elements, "buffer {} of {} elements is read at {}", b, at.elements, furthest);
  if (rank == 0) {
    const int64_t zero = 0;
    return visit(at.data, buffer.placement.offset, &zero, int64_t{1});
  }
  std::vector<int64_t> index(rank, 0);
  const int last = rank - 1;
  while (true) {
    int64_t first = buffer.placement.offset;
    for (int d = 0; d < last; ++d) first += steps[d][index[d]];
    visit(at.data, first, steps[last].data(), type.extent(last));
    int d = last - 1;
    for (; d >= 0 && ++index[d] == type.extent(d); --d) index[d] = 0;
    if (d < 0) return;
  }
}

Array CheckedMemory::read(int32_t b) const {
  const Type type = live_type(buffer(b).value);
  Array array = Array::zeros(type);
  if (type.dtype == DType::kI32) {
    int32_t* to = array.mutable_ints().data();
    for_each_run(b, type, [&](const std::byte* data, int64_t first, const int64_t* steps, int64_t count) {
      const auto* from = reinterpret_cast<const int32_t*>(data) + first;
      for (int64_t i = 0; i < count; ++i) *to++ = from[steps[i]];
    });
    return array;
  }
  float* to = array.mutable_floats().data();
  for_each_run(b, type, [&](const std::byte* data, int64_t first, const int64_t* steps, int64_t count) {
    if (type.dtype == DType::kF32) {
      const auto* from = reinterpret_cast<const float*>(data) + first;
      for (int64_t i = 0; i < count; ++i) *to++ = from[steps[i]];
    } else {
      const auto* from = reinterpret_cast<const uint16_t*>(data) + first;
      for (int64_t i = 0; i < count; ++i) *to++ = load_word(type.dtype, conversion_, from[steps[i]]);
    }
  });
  return array;
}

void CheckedMemory::write(int32_t b, const Array& array) const {
  const Type& type = array.type();
  if (type.dtype == DType::kI32) {
    const int32_t* from = array.ints().data();
    for_each_run(b, type, [&](std::byte* data, int64_t first, const int64_t* steps, int64_t count) {
      auto* to = reinterpret_cast<int32_t*>(data) + first;
      for (int64_t i = 0; i < count; ++i) to[steps[i]] = *from++;
    });
    return;
  }
  const float* from = array.floats().data();
  for_each_run(b, type, [&](std::byte* data, int64_t first, const int64_t* steps, int64_t count) {
    if (type.dtype == DType::kF32) {
      auto* to = reinterpret_cast<float*>(data) + first;
      for (int64_t i = 0; i < count; ++i) to[steps[i]] = *from++;
    } else {
      auto* to = reinterpret_cast<uint16_t*>(data) + first;
      for (int64_t i = 0; i < count; ++i) to[steps[i]] = store_word(type.dtype, conversion_, *from++);
    }
  });
}

bool CheckedMemory::restickify(int32_t from, int32_t to) const {
  const CardBuffer &source = buffer(from), &target = buffer(to);
  const int a = source.placement.stick_dim, b = target.placement.stick_dim;
  if (a < 0 || b < 0 || a == b) return false;
  transpose_tiles(source.placement, target.placement, target.spec.card(), memory(from).data, memory(to).data,
                  static_cast<int64_t>(size_of(target.spec.dtype)));
  return true;
}

namespace {

// A NaN in every float, -1 in every i32.
Array poisoned(const Type& type) {
  Array array = Array::zeros(type);
  if (type.dtype == DType::kI32) {
    std::ranges::fill(array.mutable_ints(), -1);
  } else {
    std::ranges::fill(array.mutable_floats(), std::numeric_limits<float>::quiet_NaN());
  }
  return array;
}

}  // namespace

// Of a view only its own elements: what lies beside them may have been written by somebody else.
void CheckedMemory::poison(int32_t b) const {
  if (buffer(b).view) return write(b, poisoned(graph_.type(buffer(b).value)));
  const Memory at = memory(b);
  poison_words(buffer(b).spec.dtype, at.data, static_cast<size_t>(at.elements));
}

void check_store(const TensorStore* store, const TensorSpec& spec, const std::string& what) {
  SPYRE_CHECK(store != nullptr && store->card, "{} is not in a card store", what);
  const TensorSpec& own = store->spec;
  bool same = own.dtype == spec.dtype && own.layout.device_size == spec.layout.device_size &&
              own.layout.dim_map == spec.layout.dim_map && own.axes.size() == spec.axes.size();
  for (size_t d = 0; same && d < spec.axes.size(); ++d) {
    same = own.axes[d].card_indices() == spec.axes[d].card_indices();
  }
  if (same) return;
  auto text = [](const TensorSpec& s) {
    std::string axes;
    for (const Axis& axis : s.axes) axes += (axes.empty() ? "" : ", ") + axis.to_string();
    return fmt::format("({}) in {}", axes, s.layout.to_string());
  };
  throw_error(ErrorCode::kUnsupported, "{} lies as {}, the program expects {}", what, text(own), text(spec));
}

float float_at(const TensorStore& store, int64_t element) {
  SPYRE_CHECK(element >= 0 && element < store.spec.layout.device_elements(), "element {}", element);
  if (store.spec.dtype == DType::kF32) return reinterpret_cast<const float*>(store.memory.data())[element];
  return load_word(store, reinterpret_cast<const uint16_t*>(store.memory.data())[element]);
}

int32_t int_at(const TensorStore& store, int64_t element) {
  SPYRE_CHECK(element >= 0 && element < store.spec.layout.device_elements(), "element {}", element);
  return reinterpret_cast<const int32_t*>(store.memory.data())[element];
}

}  // namespace spyre::device
