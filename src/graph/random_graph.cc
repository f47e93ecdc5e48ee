#include "graph/random_graph.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/builder.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

// Extents around vector widths and sticks, and some that are multiples of nothing.
constexpr int64_t kExtents[] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 40, 63, 64, 65, 96, 100, 128, 130};
constexpr int64_t kStickExtents[] = {64, 64, 128, 192, 256};
constexpr int64_t kSmallExtents[] = {1, 2, 3, 4, 5};
constexpr int64_t kRowExtents[] = {1, 2, 3, 5, 8, 13, 16, 17};
constexpr double kMaxBound = 16;  // of a value: far from the overflow of f16
constexpr double kSafeFloor = 0.25;

// splitmix64: the standard distributions differ between libraries, this does not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
  template <typename T>
  const auto& pick(const T& list) {
    return list[below(static_cast<int64_t>(std::size(list)))];
  }

 private:
  uint64_t state_;
};

// What is known of a value: |x| <= bound, x >= floor where floor > 0, and how far exact and fp32 runs may differ.
// |wide| means that it is spread over its range (fresh data), so that a norm divides by something of the size of the
// bound.
struct Known {
  double bound = 1, error = 0, floor = 0;
  bool wide = false;
};

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& options) : random_(seed), options_(options), builder_("random") {
    dtype_ = random_.chance(50) ? DType::kF16 : DType::kBF16;
    unit_ = dtype_ == DType::kF16 ? 0x1p-11 : 0x1p-8;
    if (random_.chance(70)) rows_ = random_.pick(kRowExtents);
  }

  RandomGraph run() {
    const int64_t target = options_.min_ops + random_.below(options_.max_ops - options_.min_ops + 1);
    start();
    for (int tries = 0; ops() < target && tries < 500; ++tries) (this->*random_.pick(makers()))();
    while (ops() < options_.min_ops) add_value(newest(), "neg", {}, known(newest()));
    return finish();
  }

 private:
  using Maker = void (Generator::*)();
  static std::span<const Maker> makers();

  int64_t ops() const { return static_cast<int64_t>(builder_.graph().ops.size()); }
  bool room_for(int64_t count) const { return ops() + count <= options_.max_ops; }
  const Type& type(ValueId id) const { return builder_.type(id); }
  const Known& known(ValueId id) const { return known_[id]; }
  ValueId newest() const { return pool_.back(); }
  int64_t extent() {
    if (options_.whole_sticks && random_.chance(60)) return random_.pick(kStickExtents);
    return random_.pick(kExtents);
  }

  // ---- data

  ValueId declare(Type type, bool parameter) {
    std::vector<float> values(type.elements());
    for (float& x : values) x = round_to(type.dtype, static_cast<float>(random_.uniform(-1, 1)));
    return declare(type, parameter, Array::of(type, std::move(values)), {1, 0, 0, true});
  }
  ValueId declare(const Type& type, bool parameter, Array data, Known known) {
    auto& list = parameter ? result_.bindings.parameters : result_.bindings.inputs;
    const std::string name = (parameter ? "w" : "x") + std::to_string(list.size());
    list.push_back(std::move(data));
    const ValueId id = parameter ? builder_.parameter(name, type) : builder_.input(name, type);
    known_.resize(id + 1);
    known_[id] = known;
    return id;
  }
  // A parameter whose products with x keep the size of x: uniform with variance 1 / k.
  ValueId weight(const Type& type, int64_t k) {
    std::vector<float> values(type.elements());
    const double scale = std::sqrt(3.0 / static_cast<double>(k));
    for (float& x : values) x = round_to(type.dtype, static_cast<float>(random_.uniform(-scale, scale)));
    return declare(type, true, Array::of(type, std::move(values)), {scale, 0, 0, true});
  }

  void start() {
    for (int64_t count = 1 + random_.below(2); count > 0; --count) {
      std::vector<Dim> dims;
      const int64_t kind = random_.below(4);
      if (kind == 1) dims.push_back({random_.pick(kSmallExtents)});
      if (rows_ > 0 && (kind != 2 || count == 1)) dims.push_back({rows_, true});
      if (kind == 3) dims.push_back({random_.pick(kSmallExtents)});
      dims.push_back({extent()});
      pool_.push_back(declare(Type::tensor(dtype_, dims), false));
    }
  }

  // ---- recording

  // Rounding of a result of the given bound, with a floor for the subnormals of f16.
  double rounding(double bound) const { return unit_ * bound + 1e-7; }

  // The result of one operator joins the pool unless it grew too large, too imprecise or too big; then nothing happens.
  bool admissible(const Type& type, const Known& known) const {
    return type.elements() <= options_.max_elements && known.bound <= kMaxBound && known.error <= 40 * unit_;
  }
  ValueId record(std::string_view name, std::vector<ValueId> inputs, std::vector<NamedAttribute> attributes,
                 Known known) {
    const ValueId id = builder_.op1(name, std::move(inputs), std::move(attributes));
    known_.resize(id + 1);
    known_[id] = known;
    return id;
  }
  void add_op(std::string_view name, std::vector<ValueId> inputs, std::vector<NamedAttribute> attributes, Known known) {
    if (admissible(type(inputs[0]), known))
      pool_.push_back(record(name, std::move(inputs), std::move(attributes), known));
  }
  void add_value(ValueId x, std::string_view name, std::vector<NamedAttribute> attributes, Known known) {
    add_op(name, {x}, std::move(attributes), known);
  }

  // Later values more often, so that graphs grow long.
  ValueId choose() {
    const auto size = static_cast<int64_t>(pool_.size());
    return pool_[random_.chance(65) ? size - 1 : random_.below(size)];
  }
  // An axis of x that is not the rows dimension, or -1.
  int64_t plain_axis(const Type& x) {
    std::vector<int64_t> axes;
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (!x.dims[axis].rows) axes.push_back(axis);
    }
    return axes.empty() ? -1 : random_.pick(axes);
  }
  static bool has_plain_last_axis(const Type& x) { return x.rank() >= 1 && !x.dims.back().rows; }
  static std::vector<int64_t> shape_of(const Type& x) {
    std::vector<int64_t> shape;
    for (const Dim& dim : x.dims) shape.push_back(dim.rows ? -1 : dim.extent);
    return shape;
  }

  // x, or |x| + 0.5 when it may come near zero. kNoValue when there is no room for that and one more operator.
  ValueId positive(ValueId x) {
    if (known(x).floor >= kSafeFloor && known(x).floor > 8 * known(x).error) return x;
    if (!room_for(3)) return kNoValue;
    Known k = known(x);
    if (k.error > 0.05) return kNoValue;
    x = record("abs", {x}, {}, k);
    k.bound += 0.5, k.floor = 0.5, k.error += rounding(k.bound), k.wide = false;
    return record("offset", {x}, {{"value", 0.5}}, k);
  }

  // ---- makers, one per kind of operator

  void make_smooth() {
    struct Smooth {
      std::string_view name;
      double slope, bound;  // bound 0: that of x
    };
    constexpr Smooth kSmooth[] = {{"neg", 1, 0},    {"abs", 1, 0},  {"tanh", 1, 1},    {"sigmoid", 0.25, 1},
                                  {"silu", 1.1, 0}, {"relu", 1, 0}, {"gelu", 1.13, 0}, {"gelu_tanh", 1.13, 0}};
    const Smooth& f = random_.pick(kSmooth);
    const ValueId x = choose();
    Known k = known(x);
    k.bound = f.bound > 0 ? f.bound : k.bound;
    k.error = f.slope * k.error + rounding(k.bound), k.floor = 0, k.wide = false;
    add_value(x, f.name, {}, k);
  }

  void make_exp() {
    const ValueId x = choose();
    Known k = known(x);
    if (k.bound > 2.5) return;
    const double top = std::exp(k.bound);
    add_value(x, "exp", {}, {top, top * k.error * 1.1 + rounding(top), std::exp(-k.bound), false});
  }

  void make_of_positive() {
    const ValueId x = positive(choose());
    if (x == kNoValue) return;
    const Known k = known(x);
    const double f = k.floor - k.error, root = std::sqrt(f);
    const auto error = [&](double slope, double bound) { return slope * k.error * 1.1 + rounding(bound); };
    switch (random_.below(4)) {
      case 0: {
        const double bound = std::sqrt(k.bound);
        return add_value(x, "sqrt", {}, {bound, error(0.5 / root, bound), std::sqrt(k.floor), false});
      }
      case 1:
        return add_value(x, "rsqrt", {}, {1 / root, error(0.5 / (root * f), 1 / root), 0, false});
      case 2:
        return add_value(x, "reciprocal", {}, {1 / f, error(1 / (f * f), 1 / f), 0, false});
      default: {
        const double bound = std::max(std::fabs(std::log(f)), std::fabs(std::log(k.bound)));
        return add_value(x, "log", {}, {bound, error(1 / f, bound), 0, false});
      }
    }
  }

  void make_scale() {
    const ValueId x = choose();
    const Known k = known(x);
    const double c = random_.uniform(-1.5, 1.5);
    if (random_.chance(50)) {
      const double bound = k.bound * std::fabs(c);
      add_value(x, "scale", {{"factor", c}}, {bound, k.error * std::fabs(c) + rounding(bound), 0, false});
    } else {
      const double bound = k.bound + std::fabs(c);
      add_value(x, "offset", {{"value", c}}, {bound, k.error + rounding(bound), 0, false});
    }
  }

  // To another dtype and back; the value in between may be an output as well.
  void make_convert() {
    if (!room_for(2)) return;
    const ValueId x = choose();
    Known k = known(x);
    const DType other = random_.chance(50) ? DType::kF32 : dtype_ == DType::kF16 ? DType::kBF16 : DType::kF16;
    k.error += other == DType::kBF16 ? 0x1p-8 * k.bound : rounding(k.bound);
    k.wide = false;
    if (!admissible(type(x), k)) return;
    const ValueId between = record("convert", {x}, {{"dtype", std::string(to_string(other))}}, k);
    if (random_.chance(20)) outputs_.push_back(between);
    add_value(between, "convert", {{"dtype", std::string(to_string(dtype_))}}, k);
  }

  // A partner for x: a value of the pool that broadcasts with it, or fresh data of a broadcast shape.
  ValueId partner(ValueId x) {
    for (int tries = 0; tries < 6 && random_.chance(70); ++tries) {
      const ValueId y = random_.pick(pool_);
      if (broadcasts(type(x), type(y))) return y;
    }
    std::vector<Dim> dims = type(x).dims;
    bool rows = false;
    for (Dim& dim : dims) {
      if (random_.chance(25)) dim = {1, false};
      rows = rows || dim.rows;
    }
    while (!dims.empty() && !dims.front().rows && random_.chance(40)) dims.erase(dims.begin());
    return declare(Type::tensor(dtype_, dims), !rows && random_.chance(70));
  }
  bool broadcasts(const Type& x, const Type& y) const {
    try {
      const Op op{.def = &op_named("add"), .inputs = {}, .outputs = {}, .attributes = {}};
      const Type types[] = {x, y};
      return infer_types(op, types)[0].elements() <= options_.max_elements;
    } catch (const Error&) {
      return false;
    }
  }

  void make_binary() {
    ValueId a = choose(), b = partner(a);
    if (random_.chance(30)) std::swap(a, b);
    if (!broadcasts(type(a), type(b))) return;
    const Known x = known(a), y = known(b);
    const double sum = x.bound + y.bound, product = x.bound * y.bound, larger = std::max(x.bound, y.bound);
    switch (random_.below(6)) {
      case 0:
        return add_op("add", {a, b}, {}, {sum, x.error + y.error + rounding(sum), 0, false});
      case 1:
        return add_op("sub", {a, b}, {}, {sum, x.error + y.error + rounding(sum), 0, false});
      case 2: {
        const double error = x.error * y.bound + y.error * x.bound + rounding(product);
        return add_op("mul", {a, b}, {}, {product, error, 0, false});
      }
      case 3:
        return add_op("maximum", {a, b}, {}, {larger, std::max(x.error, y.error), 0, false});
      case 4:
        return add_op("minimum", {a, b}, {}, {larger, std::max(x.error, y.error), 0, false});
      default:
        return make_division(a, b);
    }
  }
  void make_division(ValueId a, ValueId b) {
    const ValueId divisor = positive(b);
    if (divisor == kNoValue) return;
    const Known x = known(a), y = known(divisor);
    const double f = y.floor - y.error, bound = x.bound / f;
    add_op("div", {a, divisor}, {}, {bound, x.error / f + x.bound * y.error / (f * f) + rounding(bound), 0, false});
  }

  void make_matmul() {
    const ValueId x = choose();
    if (!has_plain_last_axis(type(x))) return;
    const Type& tx = type(x);
    const int64_t k = tx.extent(-1), n = extent();
    if (tx.elements() / k * n > options_.max_elements) return;
    // A sum of k products of variance |x|^2 / k: within four deviations. Errors add up the same way.
    const double bound = 2.5 * known(x).bound;
    const Known result{bound, 4 * known(x).error + rounding(bound) + 1e-5, 0, false};
    if (!admissible(tx, result)) return;
    const bool batched = tx.rank() >= 3 && random_.chance(60) && !leading_rows(tx) &&
                         tx.elements() / tx.extent(-2) * n <= options_.max_elements;
    std::vector<NamedAttribute> attributes;
    const bool accumulator = random_.chance(15);
    if (accumulator) attributes.push_back({"dtype", std::string("f32")});
    const bool linear = !batched && random_.chance(40);
    std::vector<Dim> dims;
    if (batched) dims.assign(tx.dims.begin(), tx.dims.end() - 2);
    dims.push_back({linear ? n : k});
    dims.push_back({linear ? k : n});
    const ValueId w = weight(Type::tensor(dtype_, dims), k);
    const ValueId y = record(linear ? "linear" : "matmul", {x, w}, std::move(attributes), result);
    if (accumulator) {
      outputs_.push_back(y);
    } else {
      pool_.push_back(y);
    }
  }
  static bool leading_rows(const Type& x) { return x.rows_axis() >= 0 && x.rows_axis() < x.rank() - 2; }

  void make_reshape() {
    const ValueId x = choose();
    std::vector<int64_t> shape = shape_of(type(x));
    const int64_t axis = plain_axis(type(x));
    if (axis < 0) return;
    if (random_.chance(40) && axis + 1 < static_cast<int64_t>(shape.size()) && shape[axis + 1] != -1) {
      shape[axis] *= shape[axis + 1];
      shape.erase(shape.begin() + axis + 1);
    } else if (shape.size() < kMaxRank) {
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= shape[axis]; ++d) {
        if (shape[axis] % d == 0) divisors.push_back(d);
      }
      const int64_t d = random_.pick(divisors);
      shape[axis] /= d;
      shape.insert(shape.begin() + axis + random_.below(2), d);
    }
    add_value(x, "reshape", {{"shape", shape}}, known(x));
  }

  void make_transpose() {
    const ValueId x = choose();
    std::vector<int64_t> perm;
    for (int axis = 0; axis < type(x).rank(); ++axis) perm.insert(perm.begin() + random_.below(axis + 1), axis);
    if (perm.size() > 1) add_value(x, "transpose", {{"perm", perm}}, known(x));
  }

  void make_slice() {
    const ValueId x = choose();
    const int64_t axis = plain_axis(type(x));
    if (axis < 0) return;
    const int64_t extent = type(x).dims[axis].extent, start = random_.below(extent),
                  size = 1 + random_.below(extent - start);
    add_value(x, "slice", {{"axis", axis}, {"size", size}, {"start", start}}, known(x));
  }

  void make_concat() {
    const ValueId x = choose();
    const int64_t axis = plain_axis(type(x));
    if (axis < 0) return;
    std::vector<ValueId> parts = {x};
    Known k = known(x);
    int64_t total = type(x).dims[axis].extent;
    for (const ValueId y : pool_) {
      Type same = type(y);
      if (same.rank() != type(x).rank() || same.dims[axis].rows || parts.size() >= 4) continue;
      const int64_t extent = same.dims[axis].extent;
      same.dims[axis] = type(x).dims[axis];
      if (same != type(x) || total + extent > 600) continue;
      parts.push_back(y);
      total += extent;
      k.bound = std::max(k.bound, known(y).bound), k.error = std::max(k.error, known(y).error);
      k.floor = std::min(k.floor, known(y).floor), k.wide = false;
    }
    if (type(x).elements() / type(x).dims[axis].extent * total > options_.max_elements) return;
    add_op("concat", parts, {{"axis", axis}}, k);
  }

  void make_broadcast() {
    const ValueId x = choose();
    std::vector<int64_t> shape = shape_of(type(x));
    int64_t elements = type(x).elements();
    for (int64_t& extent : shape) {
      if (extent == 1 && random_.chance(60)) elements *= extent = random_.pick(kSmallExtents);
    }
    if (shape.size() < kMaxRank && random_.chance(50)) {
      shape.insert(shape.begin(), random_.pick(kSmallExtents));
      elements *= shape.front();
    }
    if (elements <= options_.max_elements) add_value(x, "broadcast", {{"shape", shape}}, known(x));
  }

  void make_reduce() {
    const ValueId x = choose();
    const int64_t axis = plain_axis(type(x));
    if (axis < 0 || type(x).rank() < 2) return;
    Known k = known(x);
    k.wide = false;
    constexpr std::string_view kNames[] = {"reduce_sum", "reduce_mean", "reduce_max"};
    const int64_t kind = random_.below(3);
    if (kind == 0) {
      const auto n = static_cast<double>(type(x).dims[axis].extent);
      k.bound *= n, k.error *= n, k.floor *= n;
    }
    k.error += rounding(k.bound);
    add_value(x, kNames[kind], {{"axis", axis}, {"keepdims", random_.below(2)}}, k);
  }

  void make_softmax() {
    const ValueId x = choose();
    if (has_plain_last_axis(type(x))) add_value(x, "softmax", {}, {1, 2 * known(x).error + rounding(1), 0, false});
  }

  void make_norm() {
    const ValueId x = choose();
    if (!has_plain_last_axis(type(x)) || type(x).extent(-1) < 2) return;
    // Where a row may be nearly constant or zero, a large eps keeps the norm from blowing up what is only rounding.
    const bool tame = known(x).wide && type(x).extent(-1) >= 15;
    const double eps = tame ? 1e-5 : 0.25, slope = tame ? 8 : 4;
    const Type vector = Type::tensor(dtype_, std::vector<Dim>{type(x).dims.back()});
    const bool layer = random_.chance(40);
    const Known k{layer ? 5.0 : 4.0, slope * known(x).error + 3 * rounding(4), 0, false};
    if (!admissible(type(x), k)) return;
    std::vector<ValueId> operands = {x, declare(vector, true)};
    if (layer) operands.push_back(declare(vector, true));
    add_op(layer ? "layer_norm" : "rms_norm", operands, {{"eps", eps}}, k);
  }

  // x joins a residual stream in f32 (a new one, or one of its shape), which a norm brings back to 16 bits.
  void make_wide_norm() {
    const ValueId x = choose();
    const Type tx = type(x);
    if (!has_plain_last_axis(tx) || tx.extent(-1) < 2 || !room_for(6)) return;
    const std::string half(to_string(dtype_)), f32 = "f32";
    ValueId stream = kNoValue;
    for (const ValueId id : wide_) {
      if (type(id).dims == tx.dims && known(id).bound < 4) stream = id;
    }
    const Known joined = known(stream == kNoValue ? x : stream);
    const Known sum{known(x).bound + joined.bound, known(x).error + joined.error, 0, false};
    const Known result{4, 4 * sum.error + 2 * rounding(4), 0, false};  // eps as for a tame norm
    if (!admissible(tx, sum) || !admissible(tx, result)) return;
    ValueId wide = record("convert", {x}, {{"dtype", f32}}, known(x));
    if (stream != kNoValue || random_.chance(50)) {
      if (stream == kNoValue) stream = declare(Type::tensor(DType::kF32, tx.dims), false);
      std::vector<ValueId> terms = {wide, stream};
      if (random_.chance(50)) std::swap(terms[0], terms[1]);
      wide = record("add", terms, {}, sum);
    }
    const ValueId w = declare(Type::tensor(dtype_, std::vector<Dim>{tx.dims.back()}), true);
    const ValueId weight = record("convert", {w}, {{"dtype", f32}}, known(w));
    const ValueId y = record("rms_norm", {wide, weight}, {{"eps", 0.25}}, result);
    if (random_.chance(10)) outputs_.push_back(y);
    if (random_.chance(30)) outputs_.push_back(wide);
    wide_.push_back(wide);
    add_value(y, "convert", {{"dtype", half}}, result);
  }

  void make_gather() {
    std::vector<Dim> dims = {{1 + random_.below(20)}, {extent()}};
    if (random_.chance(20)) dims.push_back({random_.pick(kSmallExtents)});
    const Dim ids{rows_ > 0 && random_.chance(70) ? rows_ : 1 + random_.below(9), rows_ > 0};
    const Type ids_type = Type::tensor(DType::kI32, {Dim{ids.rows ? rows_ : ids.extent, ids.rows}});
    std::vector<int32_t> values(ids_type.elements());
    for (int32_t& id : values) id = static_cast<int32_t>(random_.below(dims[0].extent));
    const ValueId table = declare(Type::tensor(dtype_, dims), true);
    const ValueId index = declare(ids_type, false, Array::of_ints(ids_type, values), {});
    Known k = known(table);
    add_op("gather_rows", {table, index}, {}, k);
  }

  void make_rotary() {
    ValueId x = choose();
    const Type tx = type(x);
    const bool ready = tx.rank() == 3 && !tx.dims[1].rows && !tx.dims[2].rows && tx.extent(2) % 2 == 0;
    if (!ready && !(tx.rank() == 2 && !tx.dims[1].rows && tx.extent(1) % 4 == 0 && room_for(2))) return;
    Known k = known(x);
    k.bound *= 2, k.error = 2 * k.error + rounding(k.bound), k.wide = false, k.floor = 0;
    if (!admissible(tx, k)) return;
    if (!ready) {
      std::vector<int64_t> shape = shape_of(tx);
      shape[1] /= 2;
      shape.insert(shape.begin() + 1, 2);
      x = record("reshape", {x}, {{"shape", shape}}, known(x));
    }
    const Dim tokens = type(x).dims[0];
    const int64_t d = type(x).extent(2);
    if (random_.chance(50)) {
      add_op("rotary", {x, declare(Type::tensor(dtype_, std::vector<Dim>{tokens, {d}}), false)}, {}, k);
    } else {
      add_op("rotate_2x2", {x, declare(Type::tensor(dtype_, std::vector<Dim>{tokens, {2}, {2}, {d / 2}}), false)}, {},
             k);
    }
  }

  // Everything that nobody reads is an output, and now and then something that is read.
  RandomGraph finish() {
    const std::vector<std::vector<int32_t>> users = builder_.graph().users();
    for (size_t id = 0; id < users.size(); ++id) {
      const auto value = static_cast<ValueId>(id);
      if (builder_.graph().values[id].role != Role::kResult) continue;
      if (std::find(outputs_.begin(), outputs_.end(), value) != outputs_.end()) continue;
      if (users[id].empty() || random_.chance(5)) outputs_.push_back(value);
    }
    for (const ValueId id : outputs_) {
      builder_.output(id);
      result_.tolerance.push_back(2 * known(id).error);
    }
    result_.graph = builder_.finish();
    return std::move(result_);
  }

  Random random_;
  const RandomGraphOptions options_;
  Builder builder_;
  DType dtype_ = DType::kF16;
  double unit_ = 0;
  int64_t rows_ = 0;
  std::vector<Known> known_;      // by value id
  std::vector<ValueId> pool_;     // float tensors of dtype_ that operators may read
  std::vector<ValueId> wide_;     // residual streams in f32
  std::vector<ValueId> outputs_;  // values that must be outputs
  RandomGraph result_;
};

// Kinds that give weight to a graph stand more than once.
std::span<const Generator::Maker> Generator::makers() {
  static constexpr Maker kMakers[] = {
      &Generator::make_smooth,    &Generator::make_smooth,   &Generator::make_exp,       &Generator::make_of_positive,
      &Generator::make_scale,     &Generator::make_convert,  &Generator::make_binary,    &Generator::make_binary,
      &Generator::make_binary,    &Generator::make_matmul,   &Generator::make_matmul,    &Generator::make_matmul,
      &Generator::make_reshape,   &Generator::make_slice,    &Generator::make_transpose, &Generator::make_concat,
      &Generator::make_broadcast, &Generator::make_reduce,   &Generator::make_softmax,   &Generator::make_norm,
      &Generator::make_norm,      &Generator::make_gather,   &Generator::make_rotary,    &Generator::make_rotary,
      &Generator::make_wide_norm, &Generator::make_wide_norm};
  return kMakers;
}

}  // namespace

RandomGraph random_graph(uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace spyre::graph
