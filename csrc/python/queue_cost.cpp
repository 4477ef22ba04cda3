// Tasks that do nothing: what the queue alone costs a Python loop.
#include <torch/csrc/Exceptions.h>

#include "csrc/engine/engine.h"
#include "csrc/python/bindings.h"
#include "csrc/taskqueue/call_site.h"
#include "csrc/taskqueue/stream.h"
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
template <CallSite (*kSite)()>
PyObject* submit(PyObject*, PyObject*) {
  try {
    // The stream is found as an operator finds it, which knows the device from
    // its tensors.
    Stream& stream = current_stream(0);
    Submission s;
    if (!stream.begin(kWords, s, kSite())) raise_stream_error(stream);
    s.task->kernel = &kNothing;
    for (uint32_t i = 0; i < kWords; ++i) s.words[i] = i;
    stream.commit(s);
    stream.after_commit(s);
    Py_RETURN_NONE;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

CallSite no_site() { return {}; }

PyMethodDef defs[] = {
    {"submit_nothing", submit<no_site>, METH_NOARGS,
     "submit_nothing(): queue a task of 256 bytes that does nothing"},
    {"submit_with_site", submit<call_site>, METH_NOARGS,
     "submit_with_site(): the same, with the lines that launch it"}};

}  // namespace

void bind_queue_cost(pybind11::module_& m) {
  for (PyMethodDef& def : defs)
    m.add_object(def.ml_name, PyCFunction_New(&def, nullptr));
}

}  // namespace npu
