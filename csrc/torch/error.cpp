#include "csrc/torch/error.h"

#include <c10/util/Exception.h>
#include <string.h>

#include <new>

#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/kernel_warnings.h"

namespace npu {
namespace {

[[noreturn]] void raise(int code, const std::string& text) {
  switch (code) {
    case NPU_INDEX_ERROR:
      TORCH_CHECK_INDEX(false, text);
    case NPU_VALUE_ERROR:
      TORCH_CHECK_VALUE(false, text);
    case NPU_TYPE_ERROR:
      TORCH_CHECK_TYPE(false, text);
    case NPU_NOT_IMPLEMENTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case NPU_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case NPU_LINALG_ERROR:
      TORCH_CHECK_LINALG(false, text);
    default:
      TORCH_CHECK(false, text);
  }
  __builtin_unreachable();
}

int fill(npu_failure& failure, int code, const char* text) noexcept {
  failure.code = code;
  strncpy(failure.text, text, sizeof failure.text - 1);
  failure.text[sizeof failure.text - 1] = '\0';
  return code;
}

}  // namespace

void raise_stream_error(const Stream& stream) {
  check_usable();  // a forked child's streams refuse work without an error
  const auto error = stream.error();
  TORCH_INTERNAL_ASSERT(error, "the stream has failed without an error");
  raise_error(*error);
}

void raise_error(const StreamError& error) {
  if (hooks.raise) hooks.raise(error);
  raise(error.code, error.message());
}

void raise_if_failed(const Stream& stream) {
  tell_kernel_warnings();
  if (stream.failed()) [[unlikely]]
    raise_stream_error(stream);
}

void check_usable() {
  TORCH_CHECK(!in_bad_fork(),
              "Cannot re-initialize NPU in forked subprocess. To use NPU with "
              "multiprocessing, you must use the 'spawn' start method");
}

void check_device(int device) {
  TORCH_CHECK(device >= 0 && device < device_count(),
              "npu: invalid device index ", device, ": this process has ",
              device_count(),
              " npu device(s) (NPU_DISPATCH_DEVICES sets how "
              "many)");
}

void check_usable(int device) {
  check_usable();
  check_device(device);
}

void raise_no_host_memory(const char* op) {
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, op,
      ": out of host memory while it was called. Free some, or raise the limit "
      "of the process or its container (ulimit -v, memory.max)");
}

int describe_exception(npu_failure& failure) noexcept {
  try {
    if (hooks.describe_exception && hooks.describe_exception(failure))
      return failure.code;
    throw;
  } catch (const c10::OutOfMemoryError& e) {
    return fill(failure, NPU_OUT_OF_MEMORY, e.what_without_backtrace());
  } catch (const c10::IndexError& e) {
    return fill(failure, NPU_INDEX_ERROR, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return fill(failure, NPU_VALUE_ERROR, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return fill(failure, NPU_TYPE_ERROR, e.what_without_backtrace());
  } catch (const c10::LinAlgError& e) {
    return fill(failure, NPU_LINALG_ERROR, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return fill(failure, NPU_NOT_IMPLEMENTED, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    // torch's allocator of host memory, which kernels use for scratch, has no
    // exception type of its own for a lack of memory.
    const char* text = e.what_without_backtrace();
    const bool memory = strstr(text, "DefaultCPUAllocator: can't allocate");
    return fill(failure, memory ? NPU_OUT_OF_MEMORY : NPU_ERROR, text);
  } catch (const std::bad_alloc&) {
    return fill(failure, NPU_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return fill(failure, NPU_ERROR, e.what());
  } catch (...) {
    return fill(failure, NPU_ERROR, "unknown exception");
  }
}

}  // namespace npu
