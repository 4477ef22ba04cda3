#include "csrc/torch/c_api.h"

#include <stdio.h>

#include <algorithm>

#include "csrc/engine/engine.h"
#include "csrc/host/word_kernel.h"
#include "csrc/interop/foreign.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

static_assert(int(NPU_STATUS_OK) == NPU_OK);
static_assert(int(NPU_STATUS_ERROR) == NPU_ERROR);
static_assert(int(NPU_STATUS_INDEX_ERROR) == NPU_INDEX_ERROR);
static_assert(int(NPU_STATUS_VALUE_ERROR) == NPU_VALUE_ERROR);
static_assert(int(NPU_STATUS_TYPE_ERROR) == NPU_TYPE_ERROR);
static_assert(int(NPU_STATUS_NOT_IMPLEMENTED) == NPU_NOT_IMPLEMENTED);
static_assert(int(NPU_STATUS_OUT_OF_MEMORY) == NPU_OUT_OF_MEMORY);
static_assert(int(NPU_STATUS_LINALG_ERROR) == NPU_LINALG_ERROR);
static_assert(NPU_ERROR_TEXT == NPU_MAX_ERROR_TEXT);
static_assert(int(NPU_BUFFER_READ) == NPU_READ);
static_assert(int(NPU_BUFFER_WRITE) == NPU_WRITE);

namespace npu {
namespace {

// Runs f() and turns an exception into a code and a text, since nothing may be
// thrown across the C interface.
template <typename F>
int guarded(char* error, F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    npu_failure failure;
    const int code = describe_exception(failure);
    snprintf(error, NPU_ERROR_TEXT, "%s", failure.text);
    return code;
  }
}

Stream& stream_of(npu_stream stream) {
  check_usable();
  const uint64_t device = stream >> 32;
  Stream* found = device < uint64_t(device_count())
                      ? find_stream(int(device), int64_t(stream & 0xffffffff))
                      : nullptr;
  TORCH_CHECK(found, "npu: ", stream,
              " is not a stream; pass what current_stream() or "
              "torch.npu.Stream.npu_stream gave");
  return *found;
}

int failed_with(const Stream& stream, char* error) {
  check_usable();
  const auto failure = stream.error();
  if (!failure) return NPU_OK;
  snprintf(error, NPU_ERROR_TEXT, "%s", failure->message().c_str());
  return failure->code;
}

int current_stream_c(int device, npu_stream* stream, char* error) {
  return guarded(error, [&] {
    const Stream& s = usable_stream(device_or_current(device));
    *stream = uint64_t(s.device()) << 32 | uint64_t(s.id());
    return int(NPU_OK);
  });
}

// The work that a caller has given to submit(), until it is released.
struct Taken {
  int (*run)(void*, char*);
  void (*release)(void*);
  void* state;
};

int run_taken(void* state, uint64_t, npu_failure& failure) {
  const Taken& taken = *static_cast<Taken*>(state);
  return failure.code = taken.run(taken.state, failure.text);
}

void release_taken(void* state) {
  Taken* taken = static_cast<Taken*>(state);
  if (taken->release) taken->release(taken->state);
  delete taken;
}

int submit(npu_stream stream, const npu_work* work, char* error) {
  return guarded(error, [&] {
    ForeignWork foreign{nullptr,
                        run_taken,
                        release_taken,
                        new Taken{work->run, work->release, work->state},
                        {}};
    Stream* to;
    try {
      TORCH_CHECK(work->size >= sizeof(npu_work), "npu: npu_work.size is ",
                  work->size, ", not sizeof(npu_work), ", sizeof(npu_work));
      to = &stream_of(stream);
      foreign.name = intern_name(work->name);
      for (uint32_t i = 0; i < work->n_buffers; ++i) {
        const npu_buffer& b = work->buffers[i];
        foreign.views.push_back(
            {b.address, {int64_t(b.bytes)}, {1}, 1, uint8_t(b.access)});
      }
    } catch (...) {
      release_taken(foreign.state);
      throw;
    }
    return submit_foreign(*to, std::move(foreign)) ? int(NPU_OK)
                                                   : failed_with(*to, error);
  });
}

int synchronize_c(npu_stream stream, char* error) {
  return guarded(error, [&] {
    Stream& s = stream_of(stream);
    host_wait(s, s.tail(), WaitReason::kStreamSync);
    return failed_with(s, error);
  });
}

int make_word_kernel(const npu_word_kernel* of, npu_kernel_handle* kernel,
                     char* error) {
  return guarded(error, [&] {
    TORCH_CHECK(of->size >= sizeof(npu_word_kernel),
                "npu: npu_word_kernel.size is ", of->size,
                ", not sizeof(npu_word_kernel), ", sizeof(npu_word_kernel));
    std::vector<WordBuffer> buffers;
    for (uint32_t i = 0; i < of->n_buffers; ++i) {
      const npu_word_buffer& b = of->buffers[i];
      const uint32_t last = std::max(b.word, b.length_word);
      TORCH_CHECK(last < of->n_words, "npu: buffer ", i, " of ", of->name,
                  " names word ", last, " of ", of->n_words);
      WordBuffer& to = buffers.emplace_back();
      to.word = b.word;
      to.itemsize = b.itemsize;
      to.access = uint8_t(b.access);
      to.length_word = b.length_word;
      if (b.length_word) continue;
      to.sizes.assign(b.sizes, b.sizes + b.ndim);
      to.strides.assign(b.strides, b.strides + b.ndim);
    }
    *kernel = new WordKernel(
        of->name, of->run, of->n_words, buffers,
        of->one_thread ? KernelSize::kSmall : KernelSize::kLarge);
    return int(NPU_OK);
  });
}

int submit_words(npu_kernel_handle kernel, int device, const uint64_t* words,
                 char* error) {
  return guarded(error, [&] {
    Stream& stream = usable_stream(device_or_current(device));
    return static_cast<const WordKernel*>(kernel)->submit(stream, words)
               ? int(NPU_OK)
               : failed_with(stream, error);
  });
}

}  // namespace

const npu_api& c_api() {
  static const npu_api table = {
      NPU_API_VERSION, sizeof(npu_api),  current_stream_c, submit,
      synchronize_c,   make_word_kernel, submit_words};
  return table;
}

}  // namespace npu
