// Functions of npu_dispatch._C that may throw torch's errors, or a stream's.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace npu {

// m.def() for a function whose c10::Errors become the Python exceptions that
// they stand for.
template <typename F>
void def(pybind11::module_& m, const char* name, F&& f) {
  m.def(name, torch::wrap_pybind_function(std::forward<F>(f)));
}

}  // namespace npu
