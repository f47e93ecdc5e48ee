// Reading and writing buffers of a card plan while it is executed operation by operation. Internal to the executors.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/interpreter.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

class CheckedMemory {
 public:
  // |conversion| says what the 16-bit words are.
  CheckedMemory(const Launch& launch, std::byte* pool, int64_t live_rows, const Conversion& conversion);

  const CardBuffer& buffer(int32_t b) const { return plan_.buffers[b]; }
  // The type of the value in |b|, its rows dimension cut to the live rows.
  graph::Type live_type(graph::ValueId value) const;
  graph::Array read(int32_t b) const;
  void write(int32_t b, const graph::Array& array) const;
  // Moves the whole of |from| into the layout of |to|, which has another stick dimension: tiles of E x E, transposed.
  // False when one of them has no stick to transpose.
  bool restickify(int32_t from, int32_t to) const;
  // Fills the whole memory of |b| with poison; of a view, its elements.
  void poison(int32_t b) const;
  TensorStore& state(int32_t b) const;

 private:
  struct Memory {
    std::byte* data = nullptr;
    int64_t elements = 0;
  };
  Memory memory(int32_t b) const;
  template <typename Visit>
  void for_each_run(int32_t b, const graph::Type& type, Visit&& visit) const;

  const Launch& launch_;
  const graph::Graph& graph_;
  const CardPlan& plan_;
  std::byte* pool_;
  int64_t live_rows_;
  Conversion conversion_;
};

// A 16-bit word of a card store as a number, and back: an f16, a bf16 or a DL16.
float load_word(DType dtype, const Conversion& conversion, uint16_t word);
uint16_t store_word(DType dtype, const Conversion& conversion, float x);
inline float load_word(const TensorStore& store, uint16_t word) {
  return load_word(store.spec.dtype, store.conversion, word);
}
inline uint16_t store_word(const TensorStore& store, float x) {
  return store_word(store.spec.dtype, store.conversion, x);
}

// |store| holds its elements where |spec| says they are. Throws Error(kUnsupported) otherwise.
void check_store(const TensorStore* store, const TensorSpec& spec, const std::string& what);

// One element of a card store, by logical coordinates.
float float_at(const TensorStore& store, int64_t element);
int32_t int_at(const TensorStore& store, int64_t element);

}  // namespace spyre::device
