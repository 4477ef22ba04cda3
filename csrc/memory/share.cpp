// Segments that other processes can open.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "csrc/driver/registry.h"
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
