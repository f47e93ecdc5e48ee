#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"
#include "python/native/bindings.h"

namespace spyre::python {
namespace {

namespace nb = nanobind;

nb::object text(std::string_view utf8) {  // a message may quote a file name that is not UTF-8
  PyObject* result = PyUnicode_DecodeUTF8(utf8.data(), std::ssize(utf8), "replace");
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

std::string name_of(ErrorCode code) {
  if (code == ErrorCode::kInternal) return "internal";
  std::string name(to_string(code));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// Which class a code has is for spyre_inference.errors to say. Errors of the translation itself take the error's place.
void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    try {
      const nb::object raised = nb::module_::import_("spyre_inference.errors")
                                    .attr("from_code")(text(name_of(error.code())), text(error.what()));
      PyErr_SetObject(raised.type().ptr(), raised.ptr());
    } catch (nb::python_error& failure) {
      failure.restore();
    }
  }
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator(translate);
}

}  // namespace spyre::python
