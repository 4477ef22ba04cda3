// What the calling thread asks of the heap and of mutexes: preloaded, in front
// of libc's own.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

namespace {

// Of this thread; the model allocates nothing at its first use.
__thread long allocations __attribute__((tls_model("initial-exec")));
__thread long locks __attribute__((tls_model("initial-exec")));

}  // namespace

extern "C" {

// glibc's own names: dlsym() may allocate, and so cannot find malloc.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

long counted_allocations() { return allocations; }
long counted_locks() { return locks; }

void* malloc(size_t bytes) noexcept {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) noexcept {
  ++allocations;
  *to = __libc_memalign(alignment, bytes);
  return *to ? 0 : 12;  // ENOMEM
}
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using F = int (*)(pthread_mutex_t*);
  static const auto real =
      reinterpret_cast<F>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return real(mutex);
}

}  // extern "C"
