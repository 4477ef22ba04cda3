// What graph programs ask of a generated kernel's Python callable.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace npu {

class WordKernel;

// A launch whose words but for tensors' addresses are the same at each call.
struct FixedLaunch {
  const WordKernel* kernel;
  std::vector<uint64_t> words;  // 0 for a tensor
};

// `arguments`: the numbers, and null for each tensor. Throws where `callable`
// is no generated kernel of the device, or depends on the extents of tensors.
FixedLaunch fixed_launch(PyObject* callable, int device,
                         const std::vector<PyObject*>& arguments);

}  // namespace npu
