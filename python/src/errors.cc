#include "errors.h"

#include <nanobind/nanobind.h>

#include "kvring/error.h"

namespace kvring::python {

namespace nb = nanobind;

void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      // Looked up when needed: the stub generator imports this module without its package.
      try {
        const nb::object type = nb::module_::import_("kvring._errors").attr(error_code_name(error.code()));
        PyErr_SetString(type.ptr(), error.what());
      } catch (nb::python_error& missing) {
        missing.restore();
      }
    }
  });
}

}  // namespace kvring::python
