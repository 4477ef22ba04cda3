// Functions of npu_dispatch._C that may throw torch's errors, or a stream's.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <new>
#include <utility>

#include "csrc/torch/error.h"

namespace npu {

// Calls f; std::bad_alloc becomes torch.OutOfMemoryError.
template <typename F>
decltype(auto) with_host_memory(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    raise_no_host_memory("npu_dispatch");
  }
}

// Throws the Python exception that is pending in this thread as a C++ exception
// which keeps it. Needs the GIL.
[[noreturn]] inline void throw_pending() {
  python_error error;
  error.persist();
  throw error;
}

namespace detail {

template <typename F, typename R, typename... Args>
auto wrapped(F f, R (*)(Args...)) {
  return torch::wrap_pybind_function([f](Args... args) -> R {
    return with_host_memory(
        [&]() -> R { return f(std::forward<Args>(args)...); });
  });
}

}  // namespace detail

// The function, for pybind11 to bind: c10::Errors become the Python exceptions
// that they stand for, and std::bad_alloc becomes torch.OutOfMemoryError.
template <typename F>
auto wrapped(F f) {
  using Signature = pybind11::detail::function_signature_t<F>;
  return detail::wrapped(std::move(f), static_cast<Signature*>(nullptr));
}

// def_init<Arguments...>(c), for c.def(py::init<Arguments...>()): pybind11
// notes the new object where nothing catches an exception any more, so that
// without memory for the note the process would end. Here it is noted in time.
template <typename... Args, typename Class>
Class& def_init(Class& c) {
  using T = typename Class::type;
  const auto make = [](pybind11::detail::value_and_holder& made, Args... args) {
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    made.value_ptr() = object.get();
    try {
      made.type->init_instance(made.inst, nullptr);
    } catch (...) {
      made.value_ptr() = nullptr;
      throw;
    }
    (void)object.release();
  };
  return c.def("__init__", make, pybind11::detail::is_new_style_constructor());
}

template <typename F>
void def(pybind11::module_& m, const char* name, F f) {
  m.def(name, wrapped(std::move(f)));
}

}  // namespace npu
