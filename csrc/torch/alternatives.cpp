#include "csrc/torch/alternatives.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <vector>

#include "csrc/memory/caching_allocator.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/taskqueue/work_names.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

struct PoolChoice {
  int device;
  uint64_t mempool;
  const PluggedAllocator* plugged;
};
thread_local std::vector<PoolChoice> choices_;

// Set once. Release and acquire: its functions come with it.
std::atomic<const PluggedAllocator*> replacement_{nullptr};

// Memory that came from the user's function.
struct Foreign {
  const PluggedAllocator* plugged;
  void* ptr;
  size_t bytes;
  Stream* stream;
  std::mutex mutex;  // guards others
  std::vector<Stream*> others;
};

void* handle_of(Stream& stream) {
  return reinterpret_cast<void*>(uintptr_t(stream.device()) << 32 |
                                 uintptr_t(stream.id()));
}

void give_back(Foreign* f) {
  f->plugged->free(f->ptr, f->bytes, f->stream->device(),
                   handle_of(*f->stream));
  delete f;
}

int run_free(const npu_kernel*, const uint64_t* words, npu_failure*) {
  give_back(reinterpret_cast<Foreign*>(words[0]));
  return NPU_OK;
}
const npu_kernel kFree{run_free, kForeignFreeName, nullptr, 0};

// In stream order, as for a block: tasks already queued may use the memory.
void free_foreign(void* context) {
  Foreign* f = static_cast<Foreign*>(context);
  if (in_bad_fork()) return;
  Stream& stream = *f->stream;
  bool ordered = true;
  for (Stream* other : f->others)
    ordered = ordered && stream.wait_for(*other, other->tail());
  Submission s;
  if (ordered && stream.idle()) return give_back(f);
  if (!ordered || !stream.begin(1, s, call_site())) {
    // A failed stream drops what is queued: nothing will use the memory.
    host_wait(stream, stream.tail(), WaitReason::kDealloc);
    return give_back(f);
  }
  static const PublishedNames names{kFree.name};
  s.task->kernel = &kFree;
  s.words[0] = reinterpret_cast<uint64_t>(f);
  stream.commit(s);
}

}  // namespace

c10::DataPtr allocate_elsewhere(size_t bytes, Stream& stream,
                                c10::DeleterFnPtr free_block) {
  const c10::Device device(kNpu, c10::DeviceIndex(stream.device()));
  const PluggedAllocator* plugged =
      replacement_.load(std::memory_order_acquire);
  uint64_t mempool = 0;
  for (auto at = choices_.rbegin(); at != choices_.rend(); ++at) {
    if (at->device != stream.device()) continue;
    mempool = at->mempool;
    if (at->plugged) plugged = at->plugged;
    break;
  }
  if (plugged) {
    auto foreign = std::make_unique<Foreign>();
    void* ptr = plugged->alloc(bytes, stream.device(), handle_of(stream));
    TORCH_CHECK_WITH(OutOfMemoryError, ptr,
                     "NPU out of memory. Tried to allocate ", bytes,
                     " bytes: the pluggable allocator returned null");
    foreign->plugged = plugged;
    foreign->ptr = ptr;
    foreign->bytes = bytes;
    foreign->stream = &stream;
    return c10::DataPtr(ptr, foreign.release(), &free_foreign, device);
  }
  if (!mempool) return c10::DataPtr(nullptr, device);
  OutOfMemory why;
  Block* block =
      allocator(stream.device()).allocate_private(mempool, bytes, stream, why);
  TORCH_CHECK_WITH(OutOfMemoryError, block, why.message());
  return c10::DataPtr(block_address(block), block, free_block, device);
}

void record_elsewhere(const c10::DataPtr& data, Stream& stream) {
  if (data.get_deleter() != &free_foreign) return;
  Foreign* f = static_cast<Foreign*>(data.get_context());
  {
    std::lock_guard lock(f->mutex);
    if (&stream != f->stream) f->others.push_back(&stream);
  }
  if (f->plugged->record_stream)
    f->plugged->record_stream(f->ptr, handle_of(stream));
}

void erase_elsewhere(const c10::DataPtr& data, Stream& stream) {
  if (data.get_deleter() != &free_foreign) return;
  Foreign* f = static_cast<Foreign*>(data.get_context());
  {
    std::lock_guard lock(f->mutex);
    std::erase(f->others, &stream);
  }
  if (f->plugged->erase_stream)
    f->plugged->erase_stream(f->ptr, handle_of(stream));
}

void begin_pool(int device, uint64_t mempool, const PluggedAllocator* plugged) {
  choices_.push_back({device, mempool, plugged});
  alternatives_.fetch_add(1, std::memory_order_relaxed);
}

void end_pool(int device) {
  for (auto at = choices_.end(); at != choices_.begin();) {
    if ((--at)->device != device) continue;
    choices_.erase(at);
    alternatives_.fetch_sub(1, std::memory_order_relaxed);
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
  alternatives_.fetch_add(1, std::memory_order_relaxed);
  if (plugged->init) plugged->init(device_count());
}

bool allocator_replaced() {
  return replacement_.load(std::memory_order_acquire) != nullptr;
}

void reset_replacement() {
  const auto* plugged = replacement_.load(std::memory_order_acquire);
  if (plugged && plugged->reset) plugged->reset(true);
}

void limit_replacement(double fraction, int device) {
  const auto* plugged = replacement_.load(std::memory_order_acquire);
  if (plugged && plugged->memory_fraction)
    plugged->memory_fraction(fraction, device);
}

}  // namespace npu
