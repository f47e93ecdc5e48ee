#include "python/native/values.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace spyre::python {
namespace {

constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();

[[noreturn]] void wrong_type(std::string_view field, std::string_view wanted, nb::handle value) {
  throw_error(ErrorCode::kInvalidArgument, "{} is of type {}, it must be {}", field, describe_type(value), wanted);
}

nb::object owned(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

int32_t checked_id(int64_t id, std::string_view field, int64_t i) {
  if (id < 0 || id > kMostId) {
    throw_error(ErrorCode::kInvalidArgument, "{}[{}] is {}, it must be from 0 to {}", field, i, id, kMostId);
  }
  return static_cast<int32_t>(id);
}

int32_t read_id(nb::handle value, std::string_view field, int64_t i) {
  if (PyLong_CheckExact(value.ptr())) {
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return checked_id(id, field, i);
  }
  return checked_id(read_int(value, fmt::format("{}[{}]", field, i)), field, i);
}

// The memory of an array, held while the object lives.
class ArrayView {
 public:
  ArrayView(nb::handle value, std::string_view field) : field_(field) {
    if (PyObject_GetBuffer(value.ptr(), &view_, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
  }
  ~ArrayView() { PyBuffer_Release(&view_); }
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  std::vector<int32_t> ids() const {
    if (view_.ndim != 1) {
      throw_error(ErrorCode::kInvalidArgument, "{} is an array of {} dimensions, it must have one", field_, view_.ndim);
    }
    std::vector<int32_t> ids(view_.shape[0]);
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
      ids[i] = checked_id(at(static_cast<const char*>(view_.buf) + i * view_.strides[0]), field_, i);
    }
    return ids;
  }

 private:
  int64_t at(const char* element) const {
    const char* format = view_.format == nullptr ? "B" : view_.format;
    constexpr char kNative = std::endian::native == std::endian::little ? '<' : '>';
    if (*format == '@' || *format == '=' || *format == kNative) ++format;
    if (format[0] != '\0' && format[1] == '\0') {
      const bool is_signed = std::strchr("bhilq", format[0]) != nullptr;
      if (is_signed || std::strchr("BHILQ", format[0]) != nullptr) return integer(element, is_signed);
    }
    throw_error(ErrorCode::kInvalidArgument, "{} is an array of format '{}', it must hold integers", field_, format);
  }

  int64_t integer(const char* element, bool is_signed) const {
    switch (view_.itemsize) {
      case 1:
        return is_signed ? load<int8_t>(element) : load<uint8_t>(element);
      case 2:
        return is_signed ? load<int16_t>(element) : load<uint16_t>(element);
      case 4:
        return is_signed ? load<int32_t>(element) : load<uint32_t>(element);
      default:
        return is_signed ? load<int64_t>(element) : load<uint64_t>(element);
    }
  }

  template <typename T>
  static int64_t load(const char* element) {
    T value;
    std::memcpy(&value, element, sizeof value);  // a stride need not keep the alignment
    return static_cast<int64_t>(value);          // what is beyond 63 bits comes out negative, and is refused
  }

  std::string_view field_;
  Py_buffer view_{};
};

bool is_text(nb::handle value) {
  return PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyByteArray_Check(value.ptr());
}

}  // namespace

nb::object find_attribute(nb::handle owner, const Name& name) {
  PyObject* value = PyObject_GetAttr(owner.ptr(), name.object);
  if (value == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
    PyErr_Clear();
  }
  return nb::steal(value);
}

nb::object attribute(nb::handle owner, const Name& name, std::string_view owner_name) {
  nb::object value = find_attribute(owner, name);
  if (!value.is_valid()) {
    throw_error(ErrorCode::kInvalidArgument, "{} (a {}) has no {}", owner_name, describe_type(owner), name.text);
  }
  return value;
}

bool is_set(nb::handle value) {
  if (!value.is_valid() || value.is_none()) return false;
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (PyLong_Check(value.ptr())) return true;
  const Py_ssize_t size = PyObject_Size(value.ptr());
  if (size >= 0) return size > 0;
  PyErr_Clear();  // it is no container
  return true;
}

Items::Items(nb::handle value, std::string_view field) {
  if (is_text(value) || PyDict_Check(value.ptr())) wrong_type(field, "a list", value);
  PyObject* sequence = PySequence_Fast(value.ptr(), "");
  if (sequence == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    wrong_type(field, "a list", value);
  }
  sequence_ = nb::steal(sequence);
  is_list_ = PyList_Check(sequence);
  size_ = PySequence_Size(sequence);
}

nb::handle Items::operator[](int64_t i) const {
  PyObject* item = is_list_ ? PyList_GetItem(sequence_.ptr(), i) : PyTuple_GetItem(sequence_.ptr(), i);
  if (item == nullptr) throw nb::python_error();
  return item;
}

int64_t read_int(nb::handle value, std::string_view field) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) wrong_type(field, "an int", value);
  PyObject* index = PyNumber_Index(value.ptr());
  if (index == nullptr) {
    PyErr_Clear();
    wrong_type(field, "an int", value);
  }
  const nb::object number = nb::steal(index);
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) throw_error(ErrorCode::kInvalidArgument, "{} does not fit 64 bits", field);
  return result;
}

int32_t read_int32(nb::handle value, std::string_view field) {
  const int64_t number = read_int(value, field);
  if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorCode::kInvalidArgument, "{} is {}, which does not fit 32 bits", field, number);
  }
  return static_cast<int32_t>(number);
}

double read_double(nb::handle value, std::string_view field) {
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AsDouble(value.ptr());
  if (PyBool_Check(value.ptr()) || is_text(value)) wrong_type(field, "a number", value);
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (too_large) throw_error(ErrorCode::kInvalidArgument, "{} is too large", field);
    wrong_type(field, "a number", value);
  }
  return number;
}

bool read_bool(nb::handle value, std::string_view field) {
  if (!PyBool_Check(value.ptr())) wrong_type(field, "True or False", value);
  return value.ptr() == Py_True;
}

std::string read_string(nb::handle value, std::string_view field) {
  if (!PyUnicode_Check(value.ptr())) wrong_type(field, "a str", value);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    throw_error(ErrorCode::kInvalidArgument, "{} has characters that are not Unicode", field);
  }
  return {text, static_cast<size_t>(size)};
}

std::vector<std::string> read_strings(nb::handle value, std::string_view field) {
  const Items items(value, field);
  std::vector<std::string> strings;
  strings.reserve(items.size());
  for (int64_t i = 0; i < items.size(); ++i) strings.push_back(read_string(items[i], field));
  return strings;
}

std::vector<int32_t> read_ids(nb::handle value, std::string_view field) {
  if (PyObject_CheckBuffer(value.ptr()) && !is_text(value)) return ArrayView(value, field).ids();
  const Items items(value, field);
  std::vector<int32_t> ids;
  ids.reserve(items.size());
  for (int64_t i = 0; i < items.size(); ++i) ids.push_back(read_id(items[i], field, i));
  return ids;
}

std::string describe_type(nb::handle value) {
  const nb::handle type = value.type();
  const auto part = [&](const char* name) {
    return nb::cast<std::string>(nb::str(nb::getattr(type, name, nb::str("?"))));
  };
  const std::string module = part("__module__"), name = part("__qualname__");
  return module == "builtins" ? name : module + "." + name;
}

std::string one_line(const std::exception& error) {
  std::string text = error.what();
  if (const auto* raised = dynamic_cast<const nb::python_error*>(&error)) {
    text = describe_type(raised->value()) + ": " + nb::str(raised->value()).c_str();
  }
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

nb::object to_python(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, value] : json.items()) dict[nb::str(key.data(), key.size())] = to_python(value);
      return dict;
    }
    case nlohmann::json::value_t::array: {
      nb::list list;
      for (const auto& value : json) list.append(to_python(value));
      return list;
    }
    case nlohmann::json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return owned(PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace"));
    }
    case nlohmann::json::value_t::boolean:
      return nb::bool_(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
      return nb::int_(json.get<int64_t>());
    case nlohmann::json::value_t::number_unsigned:
      return nb::int_(json.get<uint64_t>());
    case nlohmann::json::value_t::number_float:
      return nb::float_(json.get<double>());
    default:
      return nb::none();
  }
}

}  // namespace spyre::python
