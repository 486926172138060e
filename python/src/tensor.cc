#include "tensor.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "kvring/error.h"

namespace kvring::python {

namespace nb = nanobind;

namespace {

constexpr nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  switch (dtype) {
    case DType::kF32:
      return {static_cast<std::uint8_t>(Code::Float), 32, 1};
    case DType::kBF16:
      return {static_cast<std::uint8_t>(Code::Bfloat), 16, 1};
    case DType::kF16:
      break;
  }
  return {static_cast<std::uint8_t>(Code::Float), 16, 1};
}

// As NumPy would call it.
std::string dlpack_name(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code) { return dtype.code == static_cast<std::uint8_t>(code); };
  const char* kind = is(Code::Int)       ? "int"
                     : is(Code::UInt)    ? "uint"
                     : is(Code::Float)   ? "float"
                     : is(Code::Bfloat)  ? "bfloat"
                     : is(Code::Complex) ? "complex"
                     : is(Code::Bool)    ? "bool"
                                         : "a narrow type of bits ";
  return fmt::format("{}{}", kind, dtype.bits);
}

DType supported_dtype(const std::string& name, nb::dlpack::dtype given, bool bits_are_bf16) {
  if (bits_are_bf16) return DType::kBF16;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (given == dlpack_dtype(dtype)) return dtype;
  }
  throw Unsupported(
      fmt::format("{} is {}; it must be float32, float16 or bfloat16", name, dlpack_name(given)));
}

// Why an object with __dlpack__ would not give its memory, in its own words.
std::string refusal_of(const nb::object& array, Access access) {
  try {
    array.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    return nb::cast<std::string>(nb::str(error.value()));
  }
  return access == Access::kWrite ? "it is read-only" : "its __dlpack__ gives no usable capsule";
}

void check_device(const std::string& name, const nb::object& array) {
  std::int64_t type = nb::device::cpu::value;
  try {
    if (!nb::hasattr(array, "__dlpack_device__")) return;
    type = nb::cast<std::int64_t>(array.attr("__dlpack_device__")()[0].attr("__index__")());
  } catch (nb::python_error& error) {
    throw InvalidArgument(fmt::format("{} does not say on which device it is ({}); it must be on the CPU",
                                      name, nb::cast<std::string>(nb::str(error.value()))));
  }
  if (type != nb::device::cpu::value) {
    throw InvalidArgument(fmt::format(
        "{} is on a device of DLPack's type {}; it must be on the CPU, which is type 1", name, type));
  }
}

struct Extent {
  std::uintptr_t begin, end;
};

// First byte and past the last; empty for no elements.
Extent extent(const TensorView& t) {
  const auto begin = reinterpret_cast<std::uintptr_t>(t.data);
  if (t.elements() == 0) return {begin, begin};
  std::int64_t last = 0;
  for (std::size_t i = 0; i < 4; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * dtype_bytes(t.dtype)};
}

}  // namespace

Tensor::Tensor(std::string name, nb::object array, Access access, bool bits_are_bf16)
    : name_(std::move(name)) {
  check_device(name_, array);
  import_array(array, access);
  dtype_ = supported_dtype(name_, array_.dtype(), bits_are_bf16);
  if (dims() != 3 && dims() != 4) {
    throw InvalidArgument(
        fmt::format("{} has {} dimensions; it must have 4, (batch, seqlen, heads, dim), or 3 without batch",
                    name_, dims()));
  }
  check_strides(access);
  if (reinterpret_cast<std::uintptr_t>(array_.data()) % dtype_bytes(dtype_) != 0 && array_.size() > 0) {
    throw InvalidArgument(fmt::format(
        "{} starts at an address that is not a multiple of its element size; copy it first", name_));
  }
}

void Tensor::import_array(const nb::object& array, Access access) {
  bool got = false;
  if (access == Access::kRead) {
    got = nb::try_cast(array, array_);
  } else {
    nb::ndarray<> writable;
    got = nb::try_cast(array, writable);
    if (got) array_ = nb::ndarray<nb::ro>(writable);
  }
  if (!got) {
    throw InvalidArgument(fmt::format("the memory of {} cannot be {}: {}", name_,
                                      access == Access::kRead ? "read" : "written",
                                      refusal_of(array, access)));
  }
}

void Tensor::check_strides(Access access) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, extent
  for (std::size_t i = 0; i < array_.ndim(); ++i) {
    if (array_.shape(i) < 2) continue;
    if (array_.stride(i) < 0) {
      throw InvalidArgument(fmt::format(
          "{} has a stride of {} elements in dimension {}; strides must not be negative: copy it first",
          name_, array_.stride(i), i));
    }
    steps.emplace_back(array_.stride(i), static_cast<std::int64_t>(array_.shape(i)));
  }
  if (access == Access::kRead || array_.size() == 0) return;
  std::sort(steps.begin(), steps.end());
  std::int64_t inner = 1;
  for (const auto& [stride, size] : steps) {
    if (stride < inner) {
      throw InvalidArgument(
          fmt::format("{} has elements that share memory (a stride of {}); each needs a place of its own",
                      name_, stride));
    }
    inner = stride * size;
  }
}

std::vector<std::int64_t> Tensor::shape() const {
  return {array_.shape_ptr(), array_.shape_ptr() + array_.ndim()};
}

TensorView Tensor::view() const {
  auto* data = static_cast<std::byte*>(array_.data_handle()) + array_.byte_offset();
  TensorView t{data, dtype_, {1, 0, 0, 0}, {}};
  for (std::size_t i = 0; i < dims(); ++i) {
    t.shape[4 - dims() + i] = static_cast<std::int64_t>(array_.shape(i));
    t.stride[4 - dims() + i] = array_.stride(i);
  }
  // Where there are no elements, producers give any strides.
  if (t.elements() == 0) return dense_view<void>(data, dtype_, t.shape);
  return t;
}

void check_apart(const Tensor& written, const Tensor& read) {
  const Extent w = extent(written.view()), r = extent(read.view());
  if (std::max(w.begin, r.begin) < std::min(w.end, r.end)) {
    throw InvalidArgument(
        fmt::format("{} shares the memory of {}; it needs memory of its own", written.name(), read.name()));
  }
}

nb::ndarray<nb::array_api> empty(const std::vector<std::size_t>& shape, DType dtype) {
  std::size_t bytes = dtype_bytes(dtype);
  for (const std::size_t size : shape) bytes *= size;
  // Consumers of DLPack may assume a cache line's alignment, or copy where it is missing.
  constexpr std::align_val_t kAlignment{64};
  void* data = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
  const nb::capsule owner(data, [](void* memory) noexcept { ::operator delete(memory, kAlignment); });
  return nb::ndarray<nb::array_api>(data, shape.size(), shape.data(), owner, nullptr, dlpack_dtype(dtype),
                                    nb::device::cpu::value);
}

void bind_tensor(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor", "An array of the caller, checked; its memory is used where it lies.")
      .def(
          "__init__",
          [](Tensor* self, std::string name, nb::object array, bool writable, bool bits_are_bf16) {
            new (self) Tensor(std::move(name), std::move(array), writable ? Access::kWrite : Access::kRead,
                              bits_are_bf16);
          },
          nb::arg("name"), nb::arg("array"), nb::kw_only(), nb::arg("writable") = false,
          nb::arg("bits_are_bf16") = false)
      .def_prop_ro("shape", &Tensor::shape)
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(dtype_name(t.dtype())); })
      .def_prop_ro(
          "address", [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.view().data); },
          "Of the first element: that of the caller's array, since nothing is copied.");
  m.def(
      "empty",
      [](const std::vector<std::size_t>& shape, const std::string& dtype) {
        return empty(shape, parse_dtype(dtype));
      },
      nb::arg("shape"), nb::arg("dtype"), "A dense array as an object with __dlpack__.");
}

}  // namespace kvring::python
