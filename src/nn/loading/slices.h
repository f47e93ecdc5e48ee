// The slices of a checkpoint's tensors, read by a team: who reads what next, how far ahead the system is told, and how
// one member's error ends the work of all. Internal to nn/loading.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/team.h"
#include "formats/checkpoint.h"

namespace spyre::nn {

// Rows [first_row, first_row + rows) of a tensor, and a number by which the caller knows what they are for.
struct Slice {
  const formats::TensorInfo* tensor = nullptr;
  int64_t first_row = 0, rows = 0;
  size_t id = 0;
  std::pair<size_t, uint64_t> place{};  // of the tensor
};

class SliceQueue {
 public:
  explicit SliceQueue(const formats::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // |rows| from |first_row| on, cut into slices of at most |slice_rows| that begin at multiples of it.
  void add(const formats::TensorInfo& tensor, int64_t slice_rows, size_t id);

  // Calls take(slice, member) for each slice, in the order of the files, from all members of |team| (null: from the
  // caller), and returns when all are done. What a call throws is thrown when the others have ended their slices.
  void run(ThreadTeam* team, const std::function<void(const Slice&, int member)>& take);

 private:
  void member(int index, const std::function<void(const Slice&, int)>& take);
  void read_ahead(size_t taken);

  const formats::Checkpoint& checkpoint_;
  std::vector<Slice> slices_;
  std::vector<int64_t> bytes_before_;  // in the files, of the slices before each
  std::atomic<size_t> next_{0}, announced_{0};
};

}  // namespace spyre::nn
