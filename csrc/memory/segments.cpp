// Segments and addresses: which segment holds one, and segments that other
// processes can open.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "csrc/driver/driver.h"
#include "csrc/memory/caching_allocator.h"

namespace npu {

void CachingAllocator::free_segment(uintptr_t address, const Segment& segment) {
  driver().segment_free(device_, reinterpret_cast<void*>(address),
                        segment.size);
  if (segment.handle >= 0) close(segment.handle);
}

// The segment that holds the address; end() where it is none of this
// allocator's. The caller holds the lock.
CachingAllocator::Segments::iterator CachingAllocator::segment_of(
    const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = segments_.upper_bound(at);
  if (found == segments_.begin()) return segments_.end();
  --found;
  return at - found->first < found->second.size ? found : segments_.end();
}

Block* CachingAllocator::find(const void* ptr) {
  std::lock_guard lock(lock_);
  const auto segment = segment_of(ptr);
  if (segment == segments_.end()) return nullptr;
  for (Block* block = segment->second.first; block; block = block->after)
    if (block->ptr == ptr)
      return block->state == Block::State::kActive ? block : nullptr;
  return nullptr;
}

CachingAllocator::Found CachingAllocator::report_free(const void* address) {
  std::lock_guard lock(lock_);
  const auto segment = segment_of(address);
  if (segment == segments_.end()) return {};
  Block* block = segment->second.first;
  while (static_cast<const char*>(address) >=
         static_cast<char*>(block->ptr) + block->size)
    block = block->after;
  const bool in_use = block->state == Block::State::kActive;
  block->watched = in_use;
  return {true, in_use, block->pool->part_of().graph_pool()};
}

bool CachingAllocator::is_shared(const void* address) {
  std::lock_guard lock(lock_);
  const auto found = segment_of(address);
  return found != segments_.end() && found->second.handle >= 0;
}

// The caller's block keeps the segment alive while the lock is not held.
CachingAllocator::Shared CachingAllocator::share(const void* address) {
  Shared shared;
  uintptr_t start = 0;
  {
    std::lock_guard lock(lock_);
    const auto found = segment_of(address);
    if (found != segments_.end()) {
      start = found->first;
      shared.offset = reinterpret_cast<uintptr_t>(address) - start;
      shared.bytes = found->second.size;
      shared.handle = found->second.handle;
    }
  }
  if (!start) {
    shared.why = "it is no memory of the caching allocator";
    return shared;
  }
  if (shared.handle >= 0) return shared;
  if (!driver().segment_share) {
    shared.why = std::string("the driver ") + driver().name +
                 " has no memory that processes share";
    return shared;
  }
  shared.handle = driver().segment_share(
      device_, reinterpret_cast<void*>(start), shared.bytes);
  if (shared.handle < 0) {
    shared.why = strerror(errno);
    return shared;
  }
  std::lock_guard lock(lock_);
  segments_.find(start)->second.handle = shared.handle;
  return shared;
}

}  // namespace npu
