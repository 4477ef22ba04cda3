#include "csrc/driver/emulated/memory.h"

#include <sys/mman.h>

namespace npu {

// A page takes memory only once it is touched, so a device may have more memory
// than this machine.
void* EmulatedMemory::allocate(int device, size_t bytes, double limit) {
  std::lock_guard lock(mutex_);
  double& taken = taken_[device];
  if (taken + double(bytes) > limit) return nullptr;
  void* segment = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (segment == MAP_FAILED) return nullptr;
  taken += double(bytes);
  segments_[reinterpret_cast<uint64_t>(segment)] = bytes;
  return segment;
}

void EmulatedMemory::adopt(void* segment, size_t bytes) {
  std::lock_guard lock(mutex_);
  segments_[reinterpret_cast<uint64_t>(segment)] = bytes;
}

// An adopted segment was never counted in taken_, so `taken` may be the
// smaller.
void EmulatedMemory::free(int device, void* segment, size_t bytes) {
  std::lock_guard lock(mutex_);
  munmap(segment, bytes);
  segments_.erase(reinterpret_cast<uint64_t>(segment));
  double& taken = taken_[device];
  taken = taken > double(bytes) ? taken - double(bytes) : 0;
}

bool EmulatedMemory::has(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return false;
  --at;
  return address - at->first < at->second;
}

}  // namespace npu
