// Queues a function that jiterator has compiled.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace py = pybind11;

namespace npu {
namespace {

// The compiled function: words are what its caller passed on.
using Compiled = void (*)(const uint64_t* words);

int run_compiled(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Compiled>(words[0])(words + 1);
  return NPU_OK;
}
const npu_kernel kCompiled{run_compiled, "jiterator function", nullptr, 0};

// The words name memory that is stream-ordered on the current stream.
void launch_compiled(uintptr_t function, int device,
                     const std::vector<uint64_t>& words) {
  static const PublishedNames names{kCompiled.name};
  Stream& stream = usable_stream(device);
  py::gil_scoped_release no_gil;
  Submission s;
  if (!stream.begin(uint32_t(words.size() + 1), s, call_site()))
    raise_stream_error(stream);
  s.task->kernel = &kCompiled;
  s.words[0] = function;
  std::copy(words.begin(), words.end(), s.words + 1);
  stream.commit(s);
  stream.after_commit(s);
}

}  // namespace

void bind_jit(py::module_& m) { def(m, "launch_compiled", &launch_compiled); }

}  // namespace npu
