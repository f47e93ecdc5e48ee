// Python values read into C++ ones. Every reader takes the field's name: a value of the wrong type, or a number that
// does not fit, is Error(kInvalidArgument) with that name. The GIL is held throughout. Only the stable ABI is used.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace spyre::python {

namespace nb = nanobind;

// The name of an attribute, interned once, so that looking it up neither makes nor compares a string. Lives as long as
// the process: names stand in function-local statics.
struct Name {
  explicit Name(const char* name) : text(name), object(PyUnicode_InternFromString(name)) {}
  const char* text;
  PyObject* object;
};

// The attribute, or an invalid object when there is none. Throws what a property throws.
nb::object find_attribute(nb::handle owner, const Name& name);
// Throws Error(kInvalidArgument) when there is none; |owner_name| stands in the message.
nb::object attribute(nb::handle owner, const Name& name, std::string_view owner_name);

// False for what says "nothing": invalid, None, False, and a container without elements. A number says something.
bool is_set(nb::handle value);

// The elements of a list, a tuple or anything that can be iterated but is no text. A list is not copied.
class Items {
 public:
  Items(nb::handle value, std::string_view field);
  int64_t size() const { return size_; }
  nb::handle operator[](int64_t i) const;

 private:
  nb::object sequence_;
  int64_t size_ = 0;
  bool is_list_ = false;
};

// True is no number, and no number is a truth value. What says by __index__ that it is an int is one (numpy's ints).
int64_t read_int(nb::handle value, std::string_view field);
int32_t read_int32(nb::handle value, std::string_view field);
double read_double(nb::handle value, std::string_view field);
bool read_bool(nb::handle value, std::string_view field);
std::string read_string(nb::handle value, std::string_view field);
std::vector<std::string> read_strings(nb::handle value, std::string_view field);

// Token or block ids: ints from 0 to 2^31 - 1 in a list, a tuple, a one-dimensional integer array (numpy, array.array;
// any strides), or what else can be iterated.
std::vector<int32_t> read_ids(nb::handle value, std::string_view field);

// "int", "numpy.ndarray": the type of |value| as messages name it.
std::string describe_type(nb::handle value);

// "TypeError: ..." or an Error's own words, in one line.
std::string one_line(const std::exception& error);

// dict, list, str, int, float, bool, None.
nb::object to_python(const nlohmann::json& json);

}  // namespace spyre::python
