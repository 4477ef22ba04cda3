#include "csrc/driver/emulated/emulated_driver.h"

#include <pthread.h>
#include <string.h>

#include <limits>

#include "csrc/base/env.h"
#include "csrc/driver/emulated/memory.h"
#include "csrc/driver/emulated/queues.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/driver/host/host_driver.h"
#include "csrc/driver/view.h"

namespace npu {
namespace {

const EmulatedSpec& spec() {
  static const EmulatedSpec given =
      parse_emulated_spec(env_string("NPU_EMULATED", ""));
  return given;
}

// Never destroyed: the queues' threads, which use it, end with the process.
EmulatedMemory& memory() {
  static auto* const instance = new EmulatedMemory;
  return *instance;
}
// A forked child has none of the threads, so it begins with new queues.
EmulatedQueues& queues() {
  static EmulatedQueues* instance = [] {
    pthread_atfork(nullptr, nullptr,
                   [] { instance = new EmulatedQueues(spec()); });
    return new EmulatedQueues(spec());
  }();
  return *instance;
}

EmulatedQueues::Queue& of(npu_queue queue) {
  return *reinterpret_cast<EmulatedQueues::Queue*>(queue);
}

uint64_t memory_total(int) { return uint64_t(spec().memory); }

void* segment_alloc(int device, size_t bytes) {
  return memory().allocate(
      device, bytes,
      spec().overcommits ? std::numeric_limits<double>::max() : spec().memory);
}
void segment_free(int device, void* segment, size_t bytes) {
  memory().free(device, segment, bytes);
}
void* segment_open(int device, int handle, size_t bytes) {
  void* const segment = host_driver().segment_open(device, handle, bytes);
  if (segment) memory().adopt(segment, bytes);
  return segment;
}

npu_queue queue_create(int device, int priority, const npu_reports* reports) {
  return reinterpret_cast<npu_queue>(
      queues().create(device, priority, *reports));
}
void queue_destroy(npu_queue queue) { queues().destroy(&of(queue)); }
void queue_reset(npu_queue queue) { queues().reset(of(queue)); }

// Sets every element of a view to zero, and nothing between them.
void zero(char* at, const npu_view& view, uint32_t dim) {
  if (dim == view.ndim) {
    memset(at, 0, view.itemsize);
    return;
  }
  const int64_t step = view.strides[dim] * view.itemsize;
  if (dim + 1 == view.ndim && view.strides[dim] == 1) {
    memset(at, 0, size_t(view.sizes[dim] * step));
    return;
  }
  for (int64_t i = 0; i < view.sizes[dim]; ++i)
    zero(at + i * step, view, dim + 1);
}

void zero(const npu_view& view, const uint64_t* words) {
  char* const at = reinterpret_cast<char*>(words[view.word]);
  if (is_range(view)) {
    memset(at, 0, words[view.ndim] * view.itemsize);
  } else {
    zero(at, view, 0);
  }
}

bool may_copy(const npu_kernel& kernel) {
  return !strcmp(kernel.name, "memcpy") || !strcmp(kernel.name, "aten::copy_");
}

// Calls see(view) for each view that lies in the host's memory, and not in the
// device's. Returns whether the task crosses the link.
template <typename See>
bool crosses_link(const npu_kernel& kernel, const uint64_t* words, See see) {
  const bool copy = may_copy(kernel);
  bool link = copy && kernel.n_views == 1;  // the task brings its data
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    const npu_view& view = kernel.views[i];
    const bool written = view.access & NPU_WRITE;
    if ((!written && !copy) || memory().has(words[view.word])) continue;
    link = link || copy;
    see(view);
  }
  return link;
}

TaskWork work_of(const npu_kernel& kernel, const uint64_t* words, bool link) {
  TaskWork work = work_of_task(kernel, words);
  if (!link) return work;
  work.kind = WorkKind::kCopy;
  // The bytes count twice, as read and as written, but cross the link once.
  if (kernel.n_views > 1) work.bytes /= 2;
  return work;
}

// Where nothing is computed, zeros are written to the host's memory: the
// program must find values that it can go on with, and not what the memory held
// by chance. They are written here, earlier than the device would do it; a
// program that reads them before it has waited races with the copy anyway.
int submit(npu_queue queue, uint64_t number, const npu_kernel* kernel,
           const uint64_t* words, npu_failure*) {
  const bool link = crosses_link(*kernel, words, [&](const npu_view& view) {
    if ((view.access & NPU_WRITE) && !spec().computes && words[view.word])
      zero(view, words);
  });
  return queues().submit(of(queue), number, kernel, words,
                         work_of(*kernel, words, link));
}

int task_times(npu_queue queue, uint64_t number, uint64_t* begun,
               uint64_t* ended) {
  return queues().times(of(queue), number, *begun, *ended);
}

}  // namespace

const npu_driver& emulated_driver() {
  static const npu_driver table = [] {
    npu_driver t = host_driver();
    t.name = "emulated";
    t.memory_total = memory_total;
    t.segment_alloc = segment_alloc;
    t.segment_free = segment_free;
    t.queue_create = queue_create;
    t.queue_destroy = queue_destroy;
    t.launch = nullptr;
    t.submit = submit;
    t.queue_reset = queue_reset;
    t.segment_open = segment_open;
    t.task_times = task_times;
    return t;
  }();
  return table;
}

void check_emulated_spec() { spec(); }

TaskWork emulated_work(const npu_kernel& kernel, const uint64_t* words) {
  return work_of(kernel, words,
                 crosses_link(kernel, words, [](const npu_view&) {}));
}

double take_emulated_flops() { return queues().take_flops(); }

}  // namespace npu
