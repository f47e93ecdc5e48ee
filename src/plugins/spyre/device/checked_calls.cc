#include "plugins/spyre/device/checked_calls.h"

#include "base/error.h"

namespace spyre::device {

using graph::Array;

namespace {

// The step's row tables of a head-major cache, which the card's stores go by; the slots are for the host.
void store_by_rows(CardKv& kv, const Array& k, const Array& v, const attention::StepTables& tables) {
  const int64_t tokens = k.type().extent(0), heads = k.type().extent(1), d = k.type().extent(2);
  SPYRE_CHECK(std::ssize(tables.kv_rows) == heads, "{} row tables for {} heads", tables.kv_rows.size(), heads);
  for (int64_t h = 0; h < heads; ++h) {
    const Placement placement = Placement::of(tables.kv_rows[h]->spec.layout);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = int_at(*tables.kv_rows[h], placement.step(0, t)), at = (t * heads + h) * d;
      if (row == -1) continue;
      if (row < -1 || row >= kv.rows()) {
        throw_error(ErrorCode::kInvalidArgument, "kv_store: row {} of token {}, head {} is outside {} rows", row, t, h,
                    kv.rows());
      }
      kv.store_row(row, k.floats().data() + at, v.floats().data() + at);
    }
  }
}

}  // namespace

void checked_kv_store(const CheckedMemory& memory, const DeviceOp& op, const attention::StepTables* tables) {
  const int32_t state = op.inputs[0];
  const Array k = memory.read(op.inputs[1]), v = memory.read(op.inputs[2]), slots = memory.read(op.inputs[3]);
  CardKv kv(memory.state(state), memory.buffer(state).spec, memory.buffer(op.inputs[1]).spec.axes[2],
            memory.buffer(op.inputs[2]).spec.axes[2]);
  if (kv.head_major()) {
    SPYRE_CHECK(tables != nullptr, "a head-major store without step tables");
    return store_by_rows(kv, k, v, *tables);
  }
  const int64_t heads = k.type().extent(1), d = k.type().extent(2);
  for (int64_t t = 0; t < slots.elements(); ++t) {
    const int32_t slot = slots.ints()[t];
    if (slot == -1) continue;
    if (slot < -1 || slot >= kv.slots()) {
      throw_error(ErrorCode::kInvalidArgument, "kv_store: slot {} of token {} is outside {} slots", slot, t,
                  kv.slots());
    }
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (t * heads + h) * d;
      kv.store(slot, h, k.floats().data() + at, v.floats().data() + at);
    }
  }
}

namespace {

// Row |row| of a sequence that has a program of its own.
RowBlocks blocks_of(const CardTables& at, const attention::SequencePlan& s, int64_t row) {
  RowBlocks blocks{.first_block = s.first_block};
  for (int64_t b = 0; b < s.blocks; ++b) {
    const int64_t tile = at.t.tiles[s.tile_table + b];
    blocks.pages.push_back(at.page(s.page_table + b * s.page_stride));
    blocks.masks.push_back(tile < 0 ? -1 : tile + row);
  }
  return blocks;
}

// Lane |lane| of a batched decode: every block of the grid, as the tables have it.
RowBlocks blocks_of_lane(const CardTables& at, int64_t lane) {
  const attention::Variant& grid = *at.t.grid;
  const int64_t width = round_up(grid.sequences, attention::kPageRowWidth);
  RowBlocks blocks;
  if (lane < std::ssize(at.t.sequences)) blocks.first_block = at.t.sequences[lane].first_block;
  for (int64_t b = 0; b < grid.blocks; ++b) {
    blocks.pages.push_back(at.page(b * width + lane));
    blocks.masks.push_back(at.grid_mask(b * width + lane));
  }
  return blocks;
}

}  // namespace

void checked_attention(const CheckedMemory& memory, const graph::Op& graph_op, const DeviceOp& op,
                       const attention::StepTables* tables, const CardMath& math) {
  SPYRE_CHECK(tables != nullptr, "attention without step tables");
  if (tables->block_size % 64 != 0) refuse(Rule::kBlockSize, fmt::format("blocks hold {} tokens", tables->block_size));
  const int32_t q_buffer = op.inputs[0], state = op.inputs[1], out_buffer = op.outputs[0];
  const Array q = memory.read(q_buffer);
  const graph::Type& type = q.type();
  const int64_t rows = type.extent(0), heads = type.extent(1), d = type.extent(2);
  const CardKv kv(memory.state(state), memory.buffer(state).spec, memory.buffer(q_buffer).spec.axes[2],
                  memory.buffer(out_buffer).spec.axes[2]);
  const int64_t group = heads / memory.buffer(state).spec.axes[0].logical();
  const CardTables at(*tables);
  const std::unique_ptr<AttentionRow> attend = math.attention(graph_op, type, at, kv);
  Array out = Array::zeros(type);  // live rows of no sequence give 0
  const auto run_row = [&](int64_t query_entry, const RowBlocks& blocks, float* result) {
    const int64_t row = at.query_row(query_entry);
    SPYRE_CHECK(row >= 0 && row < rows, "query row {} of {}", row, rows);
    float* y = result != nullptr ? result : out.mutable_floats().data() + row * heads * d;
    for (int64_t h = 0; h < heads; ++h) {
      attend->run(blocks, h / group, q.floats().data() + (row * heads + h) * d, y + h * d);
    }
  };
  if (tables->grid.has_value()) {
    std::vector<float> dropped(static_cast<size_t>(heads * d));  // of padding lanes
    for (int64_t lane = 0; lane < tables->grid->sequences; ++lane) {
      run_row(lane, blocks_of_lane(at, lane), lane < std::ssize(tables->sequences) ? nullptr : dropped.data());
    }
  } else {
    for (const attention::SequencePlan& s : tables->sequences) {
      for (int64_t i = 0; i < s.query_len; ++i) run_row(s.query_table + i, blocks_of(at, s, i), nullptr);
    }
  }
  memory.write(out_buffer, out);
}

}  // namespace spyre::device
