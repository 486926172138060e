// The call itself, and the parameters it takes.
#pragma once

#include <nanobind/nanobind.h>

namespace kvring::python {

void bind_attend(nanobind::module_& m);

}  // namespace kvring::python
