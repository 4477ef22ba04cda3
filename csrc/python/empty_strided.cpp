// Makes tensors for compiled programs: empty_strided(sizes, strides, dtype,
// device) without torch.empty_strided()'s parsing of arguments.
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/python/bindings.h"
#include "csrc/torch/device.h"

namespace npu {
namespace {

c10::SmallVector<int64_t, 8> integers(PyObject* tuple) {
  TORCH_CHECK_TYPE(PyTuple_Check(tuple), "sizes and strides must be tuples");
  c10::SmallVector<int64_t, 8> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const long long n = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (n == -1 && PyErr_Occurred()) throw python_error();
    all.push_back(n);
  }
  return all;
}

PyObject* empty_strided(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4 && THPDtype_Check(given[2]),
                   "empty_strided(sizes, strides, dtype, device index)");
  const long device = PyLong_AsLong(given[3]);
  if (device == -1 && PyErr_Occurred()) throw python_error();
  const auto sizes = integers(given[0]), strides = integers(given[1]);
  const auto options =
      at::TensorOptions()
          .dtype(reinterpret_cast<THPDtype*>(given[2])->scalar_type)
          .device(kNpu, c10::DeviceIndex(device));
  return THPVariable_Wrap(at::empty_strided(sizes, strides, options));
  END_HANDLE_TH_ERRORS
}

PyMethodDef method = {
    "empty_strided",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&empty_strided)),
    METH_FASTCALL, nullptr};

}  // namespace

void bind_empty_strided(pybind11::module_& m) {
  m.add_object("empty_strided", pybind11::reinterpret_steal<pybind11::object>(
                                    PyCFunction_New(&method, nullptr)));
}

}  // namespace npu
