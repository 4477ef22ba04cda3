// The pieces of npu_dispatch._C; its contract is npu_dispatch/_C.pyi.
#pragma once

#include <pybind11/pybind11.h>

namespace npu {

void bind_device(pybind11::module_& m);
void bind_flags(pybind11::module_& m);
void bind_jit(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
void bind_memory_pools(pybind11::module_& m);
void bind_stats(pybind11::module_& m);

}  // namespace npu
