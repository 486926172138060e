#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attend.h"
#include "errors.h"
#include "kvring/version.h"
#include "tensor.h"

NB_MODULE(_core, m) {
  m.doc() = "Bindings of libkvring; use the package kvring instead.";
  m.def("version", &kvring::version);
  m.def("isa", &kvring::isa);
  m.def("supported_isas", &kvring::supported_isas);
  kvring::python::bind_errors();
  kvring::python::bind_tensor(m);
  kvring::python::bind_attend(m);
}
