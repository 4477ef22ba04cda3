// The counters behind counts.h. The linker's --wrap sends the calls of the core
// and of the tests here; libraries keep their own.
#include "tests/cpp/steady/counts.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>

namespace npu::check {

thread_local Counts counts;

}  // namespace npu::check

using npu::check::counts;

extern "C" {

void* __real_malloc(size_t);
void* __wrap_malloc(size_t bytes) {
  ++counts.allocations;
  return __real_malloc(bytes);
}

void* __real_calloc(size_t, size_t);
void* __wrap_calloc(size_t n, size_t bytes) {
  ++counts.allocations;
  return __real_calloc(n, bytes);
}

void* __real_aligned_alloc(size_t, size_t);
void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  ++counts.allocations;
  return __real_aligned_alloc(alignment, bytes);
}

// operator new(size_t)
void* __real__Znwm(size_t);
void* __wrap__Znwm(size_t bytes) {
  ++counts.allocations;
  return __real__Znwm(bytes);
}

// operator new(size_t, std::align_val_t)
void* __real__ZnwmSt11align_val_t(size_t, size_t);
void* __wrap__ZnwmSt11align_val_t(size_t bytes, size_t alignment) {
  ++counts.allocations;
  return __real__ZnwmSt11align_val_t(bytes, alignment);
}

int __real_pthread_mutex_lock(pthread_mutex_t*);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++counts.locks;
  return __real_pthread_mutex_lock(mutex);
}

// Only futex and membarrier are called by number. Both take no more arguments
// than travel in registers; anything that a caller has not passed on the stack
// must not be read.
long __real_syscall(long, long, long, long, long, long, long);
long __wrap_syscall(long number, ...) {
  ++counts.system_calls;
  va_list list;
  va_start(list, number);
  long argument[5];
  for (long& a : argument) a = va_arg(list, long);
  va_end(list);
  return __real_syscall(number, argument[0], argument[1], argument[2],
                        argument[3], argument[4], 0);
}

}  // extern "C"
