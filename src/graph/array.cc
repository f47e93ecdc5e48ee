#include <new>

#include "base/error.h"
#include "graph/interpreter.h"

namespace spyre::graph {
namespace {

// Elements of an array that the interpreter allocates: 8 GiB of fp32. A graph text may ask for more; the answer is an
// error, not an attempt.
constexpr int64_t kMaxElements = int64_t{1} << 31;

template <typename T>
std::shared_ptr<std::vector<T>> allocate(const Type& type) {
  if (type.elements() > kMaxElements) {
    throw_error(ErrorCode::kResourceExhausted, "an array of {} has {} elements, the interpreter allows {}",
                type.to_string(), type.elements(), kMaxElements);
  }
  try {
    return std::make_shared<std::vector<T>>(type.elements());
  } catch (const std::bad_alloc&) {
    throw_error(ErrorCode::kResourceExhausted, "no memory for an array of {}", type.to_string());
  }
}

void require_elements(const Type& type, size_t count) {
  if (static_cast<int64_t>(count) != type.elements()) {
    throw_error(ErrorCode::kInvalidArgument, "an array of {} needs {} elements, got {}", type.to_string(),
                type.elements(), count);
  }
}

}  // namespace

Array Array::zeros(Type type) {
  type.validate();
  Array array;
  if (type.dtype == DType::kI32) {
    auto data = allocate<int32_t>(type);
    array.ints_ = data->data();
    array.owner_ = std::move(data);
  } else {
    auto data = allocate<float>(type);
    array.floats_ = data->data();
    array.owner_ = std::move(data);
  }
  array.type_ = std::move(type);
  return array;
}

Array Array::view(Type type, const float* data) {
  SPYRE_CHECK(type.is_float_tensor(), "{}", type.to_string());
  Array array;
  array.type_ = std::move(type);
  array.floats_ = data;
  return array;
}

Array Array::view(Type type, const int32_t* data) {
  SPYRE_CHECK(type.is_tensor() && type.dtype == DType::kI32, "{}", type.to_string());
  Array array;
  array.type_ = std::move(type);
  array.ints_ = data;
  return array;
}

Array Array::of(Type type, std::vector<float> values) {
  require_elements(type, values.size());
  auto data = std::make_shared<std::vector<float>>(std::move(values));
  Array array = view(std::move(type), data->data());
  array.owner_ = std::move(data);
  return array;
}

Array Array::of_ints(Type type, std::vector<int32_t> values) {
  require_elements(type, values.size());
  auto data = std::make_shared<std::vector<int32_t>>(std::move(values));
  Array array = view(std::move(type), data->data());
  array.owner_ = std::move(data);
  return array;
}

std::span<float> Array::mutable_floats() {
  SPYRE_CHECK(owner_ != nullptr && floats_ != nullptr, "{} is not owned", type_.to_string());
  return {const_cast<float*>(floats_), static_cast<size_t>(elements())};
}

std::span<int32_t> Array::mutable_ints() {
  SPYRE_CHECK(owner_ != nullptr && ints_ != nullptr, "{} is not owned", type_.to_string());
  return {const_cast<int32_t*>(ints_), static_cast<size_t>(elements())};
}

Array Array::reshaped(Type type) const {
  SPYRE_CHECK(type.elements() == elements() && type.dtype == type_.dtype, "{} from {}", type.to_string(),
              type_.to_string());
  Array array = *this;
  array.type_ = std::move(type);
  return array;
}

KvPages KvPages::allocate(const Type& kv_type, int64_t num_blocks, int64_t block_size) {
  kv_type.validate();
  SPYRE_CHECK(kv_type.is_state(), "{}", kv_type.to_string());
  const int64_t per_slot = kv_type.elements();
  if (num_blocks < 1 || block_size < 1 || num_blocks > kMaxElements / block_size / per_slot) {
    throw_error(ErrorCode::kResourceExhausted, "{} blocks of {} tokens of {}: the interpreter allows 1 .. {} elements",
                num_blocks, block_size, kv_type.to_string(), kMaxElements);
  }
  KvPages pages;
  pages.type = kv_type;
  pages.num_blocks = num_blocks;
  pages.block_size = block_size;
  pages.k.resize(num_blocks * block_size * per_slot);
  pages.v.resize(num_blocks * block_size * per_slot);
  return pages;
}

size_t KvPages::index(int64_t slot, int64_t head) const {
  return static_cast<size_t>((slot * type.extent(0) + head) * type.extent(1));
}

}  // namespace spyre::graph
