// An array of the caller, held and checked: the border where DLPack becomes a tensor view.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "kvring/tensor.h"

namespace kvring::python {

enum class Access { kRead, kWrite };

// Keeps the caller's array alive; its memory is used where it lies. Needs the GIL to be made and destroyed.
class Tensor {
 public:
  // `bits_are_bf16`: NumPy has no bfloat16, so such arrays arrive as uint16. Throws InvalidArgument or
  // Unsupported, naming the argument, unless the array is on the CPU, of a dtype of DType, of 3 or 4
  // dimensions, aligned, and without negative strides; written ones must be writable and have one place for
  // each element.
  Tensor(std::string name, nanobind::object array, Access access, bool bits_are_bf16);

  const std::string& name() const noexcept { return name_; }
  DType dtype() const noexcept { return dtype_; }
  std::vector<std::int64_t> shape() const;

  // As (batch, seqlen, heads, dim); without batch it is a batch of 1. What was given to be read is not to be
  // written through it.
  TensorView view() const;
  std::size_t dims() const noexcept { return array_.ndim(); }

 private:
  void import_array(const nanobind::object& array, Access access);
  void check_strides(Access access) const;

  std::string name_;
  nanobind::ndarray<nanobind::ro> array_;
  DType dtype_;
};

// Throws InvalidArgument if memory that is written lies between the first and last byte of one that is read.
void check_apart(const Tensor& written, const Tensor& read);

// A dense array of our own, for callers whose arrays NumPy cannot make: an object with __dlpack__.
nanobind::ndarray<nanobind::array_api> empty(const std::vector<std::size_t>& shape, DType dtype);

void bind_tensor(nanobind::module_& m);

}  // namespace kvring::python
