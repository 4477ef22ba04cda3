// What the queue alone costs a Python loop, and the copy it cannot do without.
#include <torch/csrc/Exceptions.h>

#include "csrc/python/bindings.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

constexpr uint32_t kWords = 32;  // 256 bytes

int run_nothing(const npu_kernel*, const uint64_t*, npu_failure*) {
  return NPU_OK;
}
const npu_kernel kNothing{run_nothing, "nothing", nullptr, 0};

// HANDLE_TH_ERRORS would also collect warnings, which costs as much as a task.
PyObject* submit_nothing(PyObject*, PyObject*) {
  try {
    Stream& stream = current_stream(current_device());
    Submission s;
    if (!stream.begin(kWords, s)) raise_stream_error(stream);
    s.task->kind = TaskKind::kKernel;
    s.task->kernel = &kNothing;
    for (uint32_t i = 0; i < kWords; ++i) s.words[i] = i;
    stream.commit(s);
    Py_RETURN_NONE;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

// The same stores into a buffer as large as a stream's ring, which nobody else
// reads.
PyObject* copy_nothing(PyObject*, PyObject*) {
  constexpr uint64_t kSlotWords = 40;
  static uint64_t* const slots = new uint64_t[Stream::kCapacity * kSlotWords]();
  static uint64_t position = 0;
  uint64_t* words = slots + position++ % Stream::kCapacity * kSlotWords;
  for (uint32_t i = 0; i < kWords; ++i) words[i] = i;
  asm volatile("" : : "r"(words) : "memory");
  Py_RETURN_NONE;
}

PyMethodDef submit_nothing_def = {
    "submit_nothing", submit_nothing, METH_NOARGS,
    "submit_nothing(): queue a task of 256 bytes that does nothing"};
PyMethodDef copy_nothing_def = {
    "copy_nothing", copy_nothing, METH_NOARGS,
    "copy_nothing(): store 256 bytes where a queue would, and queue nothing"};

}  // namespace

void bind_queue_cost(pybind11::module_& m) {
  m.add_object("submit_nothing", PyCFunction_New(&submit_nothing_def, nullptr));
  m.add_object("copy_nothing", PyCFunction_New(&copy_nothing_def, nullptr));
}

}  // namespace npu
