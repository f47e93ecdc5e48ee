#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plugins/spyre/kernels/panels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace spyre::kernels {
namespace {

// Both sources are walked in blocks of 64 columns by 32 k: 4 KiB each side, so that the strided side stays in L1 and
// its pages in the TLB.
constexpr int64_t kBlockK = 32;

#if defined(__SSE2__)

__m128i load(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
void store(uint16_t* p, __m128i v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
}

// out[k * 64 + n] = in[n * ld + k], 8 x 8.
void transpose_8x8(const uint16_t* in, int64_t ld, uint16_t* out) {
  __m128i r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = load(in + i * ld);
  for (int i = 0; i < 4; ++i) {  // rows i and i + 4 interleaved
    s[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    s[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm_unpacklo_epi16(s[i], s[i + 4]);
    r[2 * i + 1] = _mm_unpackhi_epi16(s[i], s[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    s[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    s[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  for (int i = 0; i < 8; ++i) store(out + i * 64, s[i]);
}

// The same for pairs: four columns by eight k; out is pair row k / 2, 128 elements apart.
void transpose_pairs_4x8(const uint16_t* in, int64_t ld, uint16_t* out) {
  const __m128i r0 = load(in), r1 = load(in + ld), r2 = load(in + 2 * ld), r3 = load(in + 3 * ld);
  const __m128i s0 = _mm_unpacklo_epi32(r0, r1), s1 = _mm_unpacklo_epi32(r2, r3);
  const __m128i s2 = _mm_unpackhi_epi32(r0, r1), s3 = _mm_unpackhi_epi32(r2, r3);
  store(out, _mm_unpacklo_epi64(s0, s1));
  store(out + 128, _mm_unpackhi_epi64(s0, s1));
  store(out + 256, _mm_unpacklo_epi64(s2, s3));
  store(out + 384, _mm_unpackhi_epi64(s2, s3));
}

// Two rows of eight become eight pairs.
void interleave_8(const uint16_t* even, const uint16_t* odd, uint16_t* out) {
  const __m128i e = load(even), o = load(odd);
  store(out, _mm_unpacklo_epi16(e, o));
  store(out + 8, _mm_unpackhi_epi16(e, o));
}

#else

void transpose_8x8(const uint16_t* in, int64_t ld, uint16_t* out) {
  for (int n = 0; n < 8; ++n) {
    for (int k = 0; k < 8; ++k) out[k * 64 + n] = in[n * ld + k];
  }
}
void transpose_pairs_4x8(const uint16_t* in, int64_t ld, uint16_t* out) {
  for (int n = 0; n < 4; ++n) {
    for (int k = 0; k < 8; ++k) out[k / 2 * 128 + n * 2 + k % 2] = in[n * ld + k];
  }
}
void interleave_8(const uint16_t* even, const uint16_t* odd, uint16_t* out) {
  for (int n = 0; n < 8; ++n) {
    out[2 * n] = even[n];
    out[2 * n + 1] = odd[n];
  }
}

#endif

// Where element (k, lane) of one panel lies.
int64_t place(bool paired, int64_t k, int64_t lane) {
  return paired ? k / 2 * 128 + lane * 2 + k % 2 : k * 64 + lane;
}

// One token of a pair row: every other word.
void copy_half(const uint16_t* in, int64_t count, uint16_t* out) {
  for (int64_t n = 0; n < count; ++n) out[2 * n] = in[n];
}

void copy_pair(const uint16_t* in, uint16_t* out) {
  std::memcpy(out, in, 2 * sizeof(uint16_t));
}

void write_in_out(bool paired, const uint16_t* in, int64_t ld, const PanelBlock& b, uint16_t* panel) {
  const int64_t k_end = b.k + b.k_count;
  int64_t k = b.k;
  if (!paired) {
    for (; k < k_end; ++k, in += ld) {
      std::memcpy(panel + k * 64 + b.lane, in, static_cast<size_t>(b.lanes) * sizeof(uint16_t));
    }
    return;
  }
  if (k % 2 != 0 && k < k_end) {
    copy_half(in, b.lanes, panel + place(true, k++, b.lane));
    in += ld;
  }
  for (; k + 1 < k_end; k += 2, in += 2 * ld) {
    uint16_t* out = panel + place(true, k, b.lane);
    int64_t n = 0;
    for (; n + 8 <= b.lanes; n += 8) interleave_8(in + n, in + ld + n, out + 2 * n);
    copy_half(in + n, b.lanes - n, out + 2 * n);
    copy_half(in + ld + n, b.lanes - n, out + 2 * n + 1);
  }
  if (k < k_end) copy_half(in, b.lanes, panel + place(true, k, b.lane));
}

void write_out_in(bool paired, const uint16_t* in, int64_t ld, const PanelBlock& b, uint16_t* panel) {
  const int64_t group = paired ? 4 : 8;
  const int64_t whole_k = b.k_count / 8 * 8;
  const int64_t whole_lanes = b.lanes / group * group;
  for (int64_t k = 0; k < whole_k; k += 8) {
    for (int64_t n = 0; n < whole_lanes; n += group) {
      uint16_t* to = panel + place(paired, b.k + k, b.lane + n);
      paired ? transpose_pairs_4x8(in + n * ld + k, ld, to) : transpose_8x8(in + n * ld + k, ld, to);
    }
  }
  for (int64_t n = 0; n < b.lanes; ++n) {
    const uint16_t* column = in + n * ld;
    int64_t k = n < whole_lanes ? whole_k : 0;
    for (; paired && k + 1 < b.k_count; k += 2) copy_pair(column + k, panel + place(true, b.k + k, b.lane + n));
    for (; k < b.k_count; ++k) panel[place(paired, b.k + k, b.lane + n)] = column[k];
  }
}

}  // namespace

int64_t PanelLayout::panels() const {
  return (n + kPanelColumns - 1) / kPanelColumns;
}

int64_t PanelLayout::padded_k() const {
  const int64_t multiple = order == DotOrder::kSequential ? 1 : order == DotOrder::kPair ? 2 : 32;
  return (k + multiple - 1) / multiple * multiple;
}

int64_t PanelLayout::panel_elements() const {
  return padded_k() * kPanelColumns;
}
int64_t PanelLayout::elements() const {
  return panels() * panel_elements();
}
int64_t PanelLayout::bytes() const {
  return elements() * static_cast<int64_t>(sizeof(uint16_t));
}

int64_t PanelLayout::index(int64_t row, int64_t column) const {
  return column / kPanelColumns * panel_elements() + place(order != DotOrder::kSequential, row, column % kPanelColumns);
}

void write_panel(DotOrder order, SourceOrder source_order, const uint16_t* source, int64_t ld, const PanelBlock& block,
                 uint16_t* panel) {
  const bool paired = order != DotOrder::kSequential;
  (source_order == SourceOrder::kInOut ? write_in_out : write_out_in)(paired, source, ld, block, panel);
}

void pack_panels(const PanelLayout& layout, SourceOrder source_order, const uint16_t* source, int64_t ld,
                 int64_t first_column, int64_t columns, uint16_t* panels) {
  SPYRE_CHECK(first_column >= 0 && columns >= 0 && first_column + columns <= layout.n, "columns {}+{} of {}",
              first_column, columns, layout.n);
  const bool paired = layout.order != DotOrder::kSequential;
  const bool in_out = source_order == SourceOrder::kInOut;
  for (int64_t done = 0; done < columns;) {
    const int64_t column = first_column + done;
    const int64_t lane = column % kPanelColumns;
    const int64_t lanes = std::min(kPanelColumns - lane, columns - done);
    uint16_t* panel = panels + column / kPanelColumns * layout.panel_elements();
    const uint16_t* in = source + (in_out ? done : done * ld);
    for (int64_t k = 0; k < layout.k; k += kBlockK) {
      write_panel(layout.order, source_order, in + k * (in_out ? ld : 1), ld,
                  {k, std::min(kBlockK, layout.k - k), lane, lanes}, panel);
    }
    const bool last = column + lanes == layout.n;
    const int64_t lane_end = last ? kPanelColumns : lane + lanes;
    for (int64_t k = layout.k; k < layout.padded_k(); ++k) {
      for (int64_t n = lane; n < lane + lanes; ++n) panel[place(paired, k, n)] = 0;
    }
    if (lane_end > lane + lanes) {
      for (int64_t k = 0; k < layout.padded_k(); ++k) {
        for (int64_t n = lane + lanes; n < lane_end; ++n) panel[place(paired, k, n)] = 0;
      }
    }
    done += lanes;
  }
}

void unpack_panels(const PanelLayout& layout, const uint16_t* panels, int64_t first_column, int64_t columns,
                   uint16_t* out, int64_t ld) {
  for (int64_t k = 0; k < layout.k; ++k) {
    for (int64_t n = 0; n < columns; ++n) out[k * ld + n] = panels[layout.index(k, first_column + n)];
  }
}

}  // namespace spyre::kernels
