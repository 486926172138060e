// kvring::Error becomes the exception class of the same code name in the Python module kvring._errors.
#pragma once

namespace kvring::python {

void bind_errors();

}  // namespace kvring::python
