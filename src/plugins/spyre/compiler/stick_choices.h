// What each operator demands of the sticks of its operands and what lies in the stick of its result: a list of choices
// that follows from the operator and the shapes alone.
//
// Three kinds: *all same* (pointwise, views, concatenation, reductions: any stick dimension, as long as all agree),
// *fixed* (matmul, norms, rotations, attention: the last dimension; a linear's weight the first), and *any* (an index,
// a state). Views keep what is in the stick where it is: a transpose moves the stick dimension, a reshape splits or
// merges it. A value whose stick dimension has extent 1 (or none is left: sparse) is *thin*: one element per stick. It
// may be broadcast along the stick by a pointwise operator, and nothing can make it dense again (L-07).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {

// One group of dimensions that a reshape regroups: the products of |from| (of x) and |to| (of the result) are equal,
// and no smaller group is. Dimensions of extent 1 belong to none. One side has one entry unless boundaries cross.
struct ReshapeGroup {
  std::vector<int> from, to;
};
std::vector<ReshapeGroup> reshape_groups(const graph::Type& x, const graph::Type& y);

// The stick dimension of |type| at |stick| holds one element per stick.
bool is_thin(const graph::Type& type, int stick);

// A set of stick dimensions, -1 (none) among them.
class StickSet {
 public:
  constexpr StickSet() = default;
  static constexpr StickSet of(int stick) { return StickSet(static_cast<uint8_t>(1u << (stick + 1))); }
  static constexpr StickSet all() { return StickSet(0xff); }
  bool contains(int stick) const { return (bits_ >> (stick + 1) & 1) != 0; }
  bool empty() const { return bits_ == 0; }
  int first() const;  // the smallest. REQUIRES: not empty
  StickSet operator&(StickSet other) const { return StickSet(bits_ & other.bits_); }
  StickSet operator|(StickSet other) const { return StickSet(bits_ | other.bits_); }
  uint8_t bits() const { return bits_; }
  bool operator==(const StickSet&) const = default;

 private:
  constexpr explicit StickSet(int bits) : bits_(static_cast<uint8_t>(bits)) {}
  uint8_t bits_ = 0;
};

struct StickChoice {
  std::vector<StickSet> operands;  // where each operand may lie; several only where they are all thin, or all the same
  int result = -1;
  // A stick dimension of the result whose extent is whole sticks: worth moving operands to though none lies that way.
  bool aligned = false;
};

// In ascending order of the result's stick. REQUIRES: the operator has a lowering and passes check_sticks().
std::vector<StickChoice> stick_choices(const graph::Graph& graph, const graph::Op& op);

// Inputs, parameters and states lie with their last dimension in the stick.
int given_stick(const graph::Type& type);

// What keeps |type| from being re-laid from one stick to another: sparse (L-07), fp32 (L-06). Between thin layouts
// whole sticks move.
std::optional<device::Rule> restickify_obstacle(const graph::Type& type, int from, int to);
// What a move to |to| costs: the device elements that it writes.
int64_t restickify_cost(const graph::Type& type, int to);

}  // namespace spyre::compiler
