// stream.submit(): Python functions as tasks; and the C interface's table.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/interop/foreign.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/c_api.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/host_ops.h"
#include "csrc/torch/storage_end.h"
#include "csrc/torch/tensor.h"

namespace py = pybind11;

namespace npu {
namespace {

// It is destroyed with the GIL held.
struct PythonCall {
  py::object function;
  std::vector<at::Tensor> tensors;  // on the host; of npu ones, aliases
  int threads = launch_threads();
};

int run_call(void* state, uint64_t, npu_failure& failure) {
  const PythonCall& call = *static_cast<PythonCall*>(state);
  use_threads_for(KernelSize::kLarge, call.threads);
  py::gil_scoped_acquire gil;
  try {
    at::NoGradGuard no_grad;
    py::tuple arguments(call.tensors.size());
    for (size_t i = 0; i < call.tensors.size(); ++i)
      arguments[i] = py::cast(call.tensors[i]);
    call.function(*arguments);
    return NPU_OK;
  } catch (...) {
    return describe_exception(failure);
  }
}

void release_call(void* state) {
  py::gil_scoped_acquire gil;
  delete static_cast<PythonCall*>(state);
}

void submit_python(int device, int64_t id, py::object function,
                   std::string_view name,
                   const std::vector<at::Tensor>& tensors,
                   const std::vector<bool>& writes) {
  Stream& stream = stream_at(device, id);
  auto call = std::make_unique<PythonCall>(std::move(function));
  std::vector<ForeignView> views;
  lend_to_sanitizer(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    if (ends_beyond_storage(t))
      raise_beyond_storage(std::string(name), "tensor " + std::to_string(i), t);
    call->tensors.push_back(is_npu(t) ? host_alias(t) : t);
    if ((is_npu(t) || t.is_cpu()) && t.numel())
      views.push_back({t.const_data_ptr(), t.sizes().vec(), t.strides().vec(),
                       uint32_t(t.itemsize()),
                       uint8_t(writes[i] ? NPU_READ | NPU_WRITE : NPU_READ)});
  }
  const ForeignWork work{intern_name(name), run_call, release_call,
                         call.release(), std::move(views)};
  // An inline stream runs the work here, and a full queue makes this wait.
  py::gil_scoped_release no_gil;
  if (!submit_foreign(stream, work)) raise_stream_error(stream);
}

uint64_t queued_tasks() {
  uint64_t queued = 0;
  for (Stream* stream : all_streams()) queued += stream->unfinished();
  return queued;
}

// Waits for all queues before the interpreter ends, since Python code may be
// queued. Nobody will replay what is still being captured.
void finish_queues() {
  constexpr uint64_t kSilentNs = 1'000'000'000;
  if (!initialized() || in_bad_fork()) return;
  Capture::get().abandon();
  py::gil_scoped_release no_gil;
  const uint64_t from = now_ns();
  bool told = false;
  const auto tell = [&] {
    if (!told && now_ns() - from > kSilentNs) {
      told = true;
      fprintf(stderr,
              "npu_dispatch: waiting for what is queued (%llu tasks) "
              "before the process ends; Ctrl-C drops them\n",
              static_cast<unsigned long long>(queued_tasks()));
    }
    return true;
  };
  for (Stream* stream : all_streams())
    host_wait_while(*stream, stream->tail(), WaitReason::kExit, tell);
}

}  // namespace

void bind_foreign(py::module_& m) {
  def(m, "submit", &submit_python);
  def(m, "finish_queues", &finish_queues);
  m.attr("api") = py::capsule(&c_api(), "npu_dispatch._C.api");
}

}  // namespace npu
