#include "csrc/torch/pluggable_memory.h"

#include <c10/util/Exception.h>
#include <stdio.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/graph/lifetime.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/watch.h"
#include "csrc/observe/work_names.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/call_site.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/program.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

struct PoolChoice {
  int device;
  uint64_t mempool;
  const PluggedAllocator* plugged;
};
struct PoolChoices {
  std::vector<PoolChoice> list;
};
std::vector<PoolChoice>& choices() {
  return PerThread<PoolChoices>::get().list;
}

// Set once. Release and acquire: whoever sees the allocator sees its functions.
std::atomic<const PluggedAllocator*> replacement_{nullptr};

// Memory that came from the user's function. It is also the program of the task
// that gives the memory back; the launcher of a failed stream does that, too.
struct PluggedMemory final : Program {
  int run(Stream&, const DeviceQueue&, const uint64_t*, npu_failure&) override;
  void dropped(Stream&, const uint64_t*) override;

  const PluggedAllocator* plugged;
  void* ptr;
  size_t bytes;
  Stream* stream;
  uint32_t site = 0;  // the call stack of the allocation, where it is checked
  // The holders are the tensor, and the pool of the graph that captured its
  // allocation: replays write the memory when the tensor is long gone.
  std::atomic<int> holders{1};
  std::mutex mutex;  // guards others
  std::vector<Stream*> others;
};

void* handle_of(Stream& stream) {
  return reinterpret_cast<void*>(uintptr_t(stream.device()) << 32 |
                                 uintptr_t(stream.id()));
}

int give_back(PluggedMemory* f, npu_failure& failure) {
  const int code = f->plugged->check
                       ? f->plugged->check(f->ptr, f->bytes, &failure)
                       : NPU_OK;
  f->plugged->free(f->ptr, f->bytes, f->stream->device(),
                   handle_of(*f->stream));
  delete f;
  return code;
}

// Where no task can fail.
void give_back(PluggedMemory* f) {
  npu_failure failure;
  if (give_back(f, failure) != NPU_OK)
    fprintf(stderr, "npu_dispatch: %s\n", failure.text);
}

int PluggedMemory::run(Stream&, const DeviceQueue&, const uint64_t*,
                       npu_failure& failure) {
  return give_back(this, failure);
}
void PluggedMemory::dropped(Stream&, const uint64_t*) { give_back(this); }

// Gives the task its name.
const npu_kernel kFree{nullptr, kPluggableFreeName, nullptr, 0};

// Memory that waits for its streams, where no task can give it back.
struct Waiting {
  explicit Waiting(PluggedMemory* f) : memory(f) {}
  ~Waiting() { give_back(memory); }
  PluggedMemory* const memory;
};
DeferredDelete<Waiting>& waiting() {
  static auto* const instance = new DeferredDelete<Waiting>;
  return *instance;
}

// Queues the task that gives the memory back, in stream order. Never waits.
// False: there is no room, or the stream has failed or belongs to a capture.
// The waits for other streams that may have been queued by then do no harm.
bool queue_free(PluggedMemory* f, Stream& stream) {
  static const PublishedNames names{kFree.name};
  if (stream.mode() == StreamMode::kInline) return false;
  Submission s;
  for (Stream* other : f->others) {
    if (stream.try_begin(2, s, {}) != Stream::Opened::kYes) return false;
    s.task->marks.kind = TaskKind::kWait;
    s.task->kernel = nullptr;
    s.words[0] = reinterpret_cast<uint64_t>(other);
    s.words[1] = other->tail();
    stream.commit(s);
  }
  if (stream.try_begin(1, s, {f->site, 0}) != Stream::Opened::kYes)
    return false;
  s.task->marks.kind = TaskKind::kProgram;
  s.task->kernel = &kFree;
  s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(f));
  stream.commit(s);
  return true;
}

// Gives the memory back in stream order, as is done with a block: tasks that
// are queued may still use it. As a deleter it never waits and never throws.
void let_go(PluggedMemory* f) noexcept {
  if (in_bad_fork()) return;
  // Acquire-release: the last holder frees after the other's last use.
  if (f->holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  memory_freed(f->ptr, f->bytes);
  Stream& stream = *f->stream;
  bool idle = stream.idle();
  for (Stream* other : f->others) idle = idle && other->idle();
  if (idle && !f->plugged->check) return give_back(f);
  try {
    if (queue_free(f, stream)) return;
  } catch (const std::exception&) {  // no thread for the launcher, no memory
  }
  std::unique_ptr<Waiting> kept(new (std::nothrow) Waiting(f));
  if (!kept) return;  // as DeferredDelete keeps for ever what it cannot note
  const auto list = [&](std::vector<StreamPoint>& points) {
    points.push_back({&stream, stream.tail()});
    for (Stream* other : f->others) points.push_back({other, other->tail()});
  };
  waiting().after(list, std::move(kept));
}

void free_plugged(void* context) {
  let_go(static_cast<PluggedMemory*>(context));
}

}  // namespace

c10::DataPtr allocate_elsewhere(size_t bytes, Stream& stream,
                                uint64_t& mempool) {
  const c10::Device device(kNpu, c10::DeviceIndex(stream.device()));
  const PluggedAllocator* plugged =
      replacement_.load(std::memory_order_acquire);
  uint64_t chosen = 0;
  for (auto at = choices().rbegin(); at != choices().rend(); ++at) {
    if (at->device != stream.device()) continue;
    chosen = at->mempool;
    if (at->plugged) plugged = at->plugged;
    break;
  }
  // A capture allocates from a pool of its own, whose memory others must not be
  // given.
  const bool captured = stream.sink() == &Capture::get();
  if (plugged) {
    waiting().collect();
    auto memory = std::make_unique<PluggedMemory>();
    void* ptr = plugged->alloc(bytes, stream.device(), handle_of(stream));
    TORCH_CHECK_WITH(OutOfMemoryError, ptr,
                     "NPU out of memory. Tried to allocate ", bytes,
                     " bytes: the pluggable allocator returned null");
    memory->plugged = plugged;
    memory->ptr = ptr;
    memory->bytes = bytes;
    memory->stream = &stream;
    if (plugged->check) memory->site = call_stack_id();
    if (captured) {
      memory->holders.store(2, std::memory_order_relaxed);
      Capture::get().pool()->keep([f = memory.get()] { let_go(f); });
    }
    return c10::DataPtr(ptr, memory.release(), &free_plugged, device);
  }
  if (!captured) mempool = chosen;
  return c10::DataPtr(nullptr, device);
}

c10::DataPtr adopt(void* ptr, size_t bytes, Stream& stream,
                   const PluggedAllocator* owner) {
  waiting().collect();
  auto memory = std::make_unique<PluggedMemory>();
  memory->plugged = owner;
  memory->ptr = ptr;
  memory->bytes = bytes;
  memory->stream = &stream;
  return c10::DataPtr(ptr, memory.release(), &free_plugged,
                      c10::Device(kNpu, c10::DeviceIndex(stream.device())));
}

void record_elsewhere(const c10::DataPtr& data, Stream& stream) {
  if (data.get_deleter() != &free_plugged) return;
  PluggedMemory* f = static_cast<PluggedMemory*>(data.get_context());
  {
    std::lock_guard lock(f->mutex);
    if (&stream != f->stream) f->others.push_back(&stream);
  }
  if (f->plugged->record_stream)
    f->plugged->record_stream(f->ptr, handle_of(stream));
}

void erase_elsewhere(const c10::DataPtr& data, Stream& stream) {
  if (data.get_deleter() != &free_plugged) return;
  PluggedMemory* f = static_cast<PluggedMemory*>(data.get_context());
  {
    std::lock_guard lock(f->mutex);
    std::erase(f->others, &stream);
  }
  if (f->plugged->erase_stream)
    f->plugged->erase_stream(f->ptr, handle_of(stream));
}

void begin_pool(int device, uint64_t mempool, const PluggedAllocator* plugged) {
  choices().push_back({device, mempool, plugged});
  pluggable_in_use_.fetch_add(1, std::memory_order_relaxed);
}

void end_pool(int device) {
  for (auto at = choices().end(); at != choices().begin();) {
    if ((--at)->device != device) continue;
    choices().erase(at);
    pluggable_in_use_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  TORCH_CHECK(false, "npu:", device, ": this thread uses no memory pool");
}

void replace_allocator(const PluggedAllocator* plugged) {
  for (int device = 0; device < device_count(); ++device)
    TORCH_CHECK(!allocator_exists(device),
                "Can't swap an already initialized allocator: device memory "
                "has been used; call change_current_allocator() before any "
                "npu tensor is made");
  const PluggedAllocator* none = nullptr;
  TORCH_CHECK(replacement_.compare_exchange_strong(none, plugged,
                                                   std::memory_order_acq_rel),
              "Can't swap an already initialized allocator: "
              "change_current_allocator() works once");
  pluggable_in_use_.fetch_add(1, std::memory_order_relaxed);
  if (plugged->init) plugged->init(device_count());
}

bool allocator_replaced() {
  return replacement_.load(std::memory_order_acquire) != nullptr;
}

bool replaced_by(const PluggedAllocator* plugged) {
  return replacement_.load(std::memory_order_acquire) == plugged;
}

void reset_replacement() {
  waiting().collect();
  const auto* plugged = replacement_.load(std::memory_order_acquire);
  if (plugged && plugged->reset) plugged->reset(true);
}

void limit_replacement(double fraction, int device) {
  const auto* plugged = replacement_.load(std::memory_order_acquire);
  if (plugged && plugged->memory_fraction)
    plugged->memory_fraction(fraction, device);
}

}  // namespace npu
