#include "plugins/spyre/device/matmul_sticks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::device {
namespace {

enum class Role : uint8_t { kM, kK, kN };

struct RolePart {
  Role role;
  int64_t extent;
};

// Parts of the sticks of x and y, outermost first.
struct StickRow {
  std::vector<RolePart> x, y;
};

StickRow row_of(CardType type) {
  switch (type) {
    case CardType::kDl16:
      return {{{Role::kK, 64}}, {{Role::kN, 64}}};
    case CardType::kInt8:
    case CardType::kFp8E4M3:
    case CardType::kFp8E5M2:
      return {{{Role::kK, 128}}, {{Role::kK, 2}, {Role::kN, 64}}};
    case CardType::kInt4:
      return {{{Role::kK, 16}, {Role::kM, 2}, {Role::kK, 8}}, {{Role::kK, 4}, {Role::kN, 64}}};
    default:
      break;
  }
  refuse(Rule::kMatmulDType, fmt::format("a batchmatmul of {}", info(type).name));
  return {{{Role::kK, stick_elements(type)}}, {{Role::kN, stick_elements(type)}}};
}

// |outer| and |inner| are the roles of the last two dimensions.
Layout laid_out(CardType type, const std::vector<int64_t>& batch, Role outer, int64_t outer_extent,
                int64_t inner_extent, const std::vector<RolePart>& parts) {
  std::vector<int64_t> size = batch;
  size.push_back(outer_extent);
  size.push_back(inner_extent);
  const int last = static_cast<int>(size.size()) - 1;
  std::vector<StickPart> stick;
  for (const RolePart& part : parts) stick.push_back({part.role == outer ? last - 1 : last, part.extent});
  return packed_layout(type, std::move(size), stick);
}

bool same_sticks(const Layout& a, const Layout& b) {
  if (a.type != b.type || a.stick_rank != b.stick_rank || a.arrangement != b.arrangement) return false;
  for (int i = 0; i < a.stick_rank; ++i) {
    const size_t x = a.dim_map.size() - 1 - static_cast<size_t>(i), y = b.dim_map.size() - 1 - static_cast<size_t>(i);
    if (a.dim_map[x] != b.dim_map[y] || a.device_size[x] != b.device_size[y]) return false;
  }
  return true;
}

void require_sticks(const char* what, const Layout& given, const Layout& expected) {
  if (same_sticks(given, expected)) return;
  refuse(Rule::kMatmulSticks, fmt::format("{} of a {} batchmatmul lies in {}, not in {}", what,
                                          info(expected.type).name, given.to_string(), expected.to_string()));
}

}  // namespace

MatmulLayouts matmul_layouts(CardType type, const MatmulShape& shape) {
  const StickRow row = row_of(type);
  if (shape.batch.size() > 2) {
    refuse(Rule::kMatmulDims, fmt::format("a batchmatmul of {} batch dimensions", shape.batch.size()));
  }
  return {.x = laid_out(type, shape.batch, Role::kM, shape.m, shape.k, row.x),
          .y = laid_out(type, shape.batch, Role::kK, shape.k, shape.n, row.y),
          .out = laid_out(CardType::kDl16, shape.batch, Role::kM, shape.m, shape.n, {{Role::kN, 64}})};
}

void check_matmul_layouts(const MatmulLayouts& given) {
  const std::vector<int64_t>&x = given.x.host_size, &y = given.y.host_size;
  SPYRE_CHECK(x.size() >= 2 && x.size() == y.size(), "ranks {} and {}", x.size(), y.size());
  const MatmulShape shape{.batch = {x.begin(), x.end() - 2}, .m = x[x.size() - 2], .k = x.back(), .n = y.back()};
  const MatmulLayouts expected = matmul_layouts(given.x.type, shape);
  require_sticks("x", given.x, expected.x);
  require_sticks("y", given.y, expected.y);
  require_sticks("the result", given.out, expected.out);
}

}  // namespace spyre::device
