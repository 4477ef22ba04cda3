#include "tests/cpp/no_memory.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <new>

namespace npu::check {
namespace {

// Relaxed: a test arms them while nobody else allocates, or takes any order.
std::atomic<bool> armed{false}, failed{false};
std::atomic<long> left{0};
bool only_once = false;
thread_local bool spared_thread = false;

bool fails() {
  if (!armed.load(std::memory_order_relaxed) || spared_thread) return false;
  const long n = left.fetch_sub(1, std::memory_order_relaxed);
  if (n > 0 || (n < 0 && only_once)) return false;
  failed.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

NoNew::NoNew(long spared, bool once) {
  left = spared;
  only_once = once;
  failed = false;
  armed = true;
}
void NoNew::end() { armed = false; }
bool NoNew::has_failed() { return failed; }

void always_gets_memory() { spared_thread = true; }

}  // namespace npu::check

// They take the place of the C++ library's own, in that library too.
void* operator new(size_t bytes) {
  void* const memory =
      npu::check::fails() ? nullptr : malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return npu::check::fails() ? nullptr : malloc(bytes ? bytes : 1);
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

void* operator new(size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  if (npu::check::fails() ||
      posix_memalign(&memory, size_t(alignment), bytes ? bytes : 1))
    throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  free(memory);
}

// The linker's --wrap sends the core's calls here. It counts those of
// libraries, too, for which a function must be visible, and which it does not
// send here.
#pragma GCC visibility push(default)
extern "C" {

void* __real_aligned_alloc(size_t, size_t);
void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  if (!npu::check::NoMemory::there_is_none)
    return __real_aligned_alloc(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* __real_mmap(void*, size_t, int, int, int, off_t);
void* __wrap_mmap(void* at, size_t bytes, int allow, int flags, int file,
                  off_t from) {
  if (!npu::check::NoMemory::there_is_none)
    return __real_mmap(at, bytes, allow, flags, file, from);
  errno = ENOMEM;
  return MAP_FAILED;
}

}  // extern "C"
#pragma GCC visibility pop
