// Pinned host memory: torch's CachingHostAllocator, which is told here how to
// allocate, and when a stream is done with a block.
#include <ATen/core/CachingHostAllocator.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>
#include <set>

#include "csrc/engine/engine.h"
#include "csrc/memory/watch.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/pinned_ranges.h"

namespace npu {
namespace {

// All pinned ranges, for is_pinned(): those that were allocated here, and those
// that were registered.
struct Ranges {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes_at;
  std::set<uintptr_t> registered;
};
Ranges& ranges() {
  static Ranges* const ranges = new Ranges;
  return *ranges;
}

using Block = at::HostBlock<c10::Stream>;

// A point in a stream is what torch's allocator calls an event.
struct Pinned final
    : at::CachingHostAllocatorImpl<c10::Stream, StreamPoint, Block> {
 private:
  void allocate_host_memory(size_t bytes, void** pointer) override {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(memory != MAP_FAILED, "npu: cannot allocate ", bytes,
                " bytes of pinned host memory");
    try {
      std::lock_guard lock(ranges().mutex);
      ranges().bytes_at[uintptr_t(memory)] = bytes;
    } catch (const std::bad_alloc&) {
      munmap(memory, bytes);
      throw;
    }
    *pointer = memory;
  }
  void free_block(Block* block) override {
    {
      std::lock_guard lock(ranges().mutex);
      ranges().bytes_at.erase(uintptr_t(block->ptr_));
    }
    munmap(block->ptr_, block->size_);
  }
  void record_stream(std::optional<std::vector<StreamPoint>>& points,
                     c10::Stream stream) override {
    Stream& s = from_torch(stream);
    if (!points) points.emplace();
    points->push_back({&s, s.tail()});
  }
  bool query_event(StreamPoint& point) override { return point.over(); }
  c10::Stream get_current_stream() const override {
    return to_torch(current_stream(current_device()));
  }
  bool stream_is_capturing(c10::Stream) const override { return false; }
};

void delete_pinned(void* context);
struct Interface final
    : at::CachingHostAllocatorInterface<Pinned, delete_pinned> {
  at::DataPtr allocate(size_t bytes) override {
    at::DataPtr data =
        at::CachingHostAllocatorInterface<Pinned, delete_pinned>::allocate(
            bytes);
    if (data) tell_observers(&Observer::host_allocated, data.get(), bytes);
    return data;
  }
};

// Leaked: tensors may be freed after static destruction.
Interface& host_allocator() {
  static Interface* const instance = new Interface;
  return *instance;
}
// As a deleter it does not throw: without memory to note which streams use the
// block, the block is never given out again. A forked child, which has none of
// these streams, keeps its copy of the memory.
void delete_pinned(void* context) try {
  if (in_bad_fork()) return;
  if (const auto* const block = static_cast<Block*>(context)) {
    tell_observers(&Observer::host_freed, block->ptr_);
    memory_freed(block->ptr_, block->size_);
  }
  host_allocator().free(context);
} catch (const std::bad_alloc&) {
}

const at::HostAllocatorRegistry<kNpu> registered(&host_allocator());

}  // namespace

c10::Allocator* pinned_allocator() { return &host_allocator(); }

bool is_pinned(const void* pointer) {
  std::lock_guard lock(ranges().mutex);
  auto at = ranges().bytes_at.upper_bound(uintptr_t(pointer));
  if (at == ranges().bytes_at.begin()) return false;
  --at;
  return uintptr_t(pointer) < at->first + at->second;
}

void register_pinned(void* address, size_t bytes) {
  const auto begin = uintptr_t(address);
  TORCH_CHECK(begin && bytes && begin + bytes > begin,
              "npu: no host memory: ", address, " and ", bytes, " bytes");
  std::lock_guard lock(ranges().mutex);
  auto& bytes_at = ranges().bytes_at;
  const auto after = bytes_at.lower_bound(begin + bytes);
  const bool pinned =
      after != bytes_at.begin() &&
      std::prev(after)->first + std::prev(after)->second > begin;
  TORCH_CHECK(!pinned, "npu: a part of the ", bytes, " bytes at ", address,
              " is pinned or registered already");
  bytes_at[begin] = bytes;
  ranges().registered.insert(begin);
}

void unregister_pinned(void* address) {
  size_t bytes;
  {
    std::lock_guard lock(ranges().mutex);
    TORCH_CHECK(ranges().registered.erase(uintptr_t(address)),
                "npu: the memory at ", address, " has not been registered");
    bytes = ranges().bytes_at.extract(uintptr_t(address)).mapped();
  }
  memory_freed(address, bytes);
}

void record_pinned(const c10::DataPtr& data, Stream& stream) {
  host_allocator().record_event(data.get(), data.get_context(),
                                to_torch(stream));
}

}  // namespace npu
