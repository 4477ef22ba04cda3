// Calls that fail when they are told to: preloaded, in front of libc's own.
//
// One kind of call at a time, and of it the n-th; calls of others than the
// extension (and the C++ library on its behalf) are passed on and not counted.
// The product has no seams for this.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <atomic>
#include <new>

namespace {

enum Kind { kNew, kMalloc, kMmap, kThread, kEventfd, kFile, kFork, kKinds };

struct Text {
  std::atomic<uintptr_t> begin, end;
  bool has(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin && at < end;
  }
};
Text ours, cplusplus;  // code of the extension and of the C++ library

std::atomic<int> armed{-1};
std::atomic<long> left{0};  // calls until the one that fails
std::atomic<long> seen{0};
std::atomic<long> failed{0};

// Where each counted call came from, as an offset, while nothing is to fail.
constexpr long kSites = 1 << 16;
std::atomic<uintptr_t> sites[kSites];

bool fails(Kind kind, const void* caller) {
  if (armed.load(std::memory_order_relaxed) != kind) return false;
  if (kind != kFork && !ours.has(caller) &&
      !(kind == kThread && cplusplus.has(caller)))
    return false;
  const long n = seen.fetch_add(1);
  if (n < kSites) sites[n] = reinterpret_cast<uintptr_t>(caller) - ours.begin;
  if (left.load() <= 0 || left.fetch_sub(1) != 1) return false;
  failed.fetch_add(1);
  return true;
}

template <typename F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

int find_text(dl_phdr_info* info, size_t, void*) {
  Text* text = strstr(info->dlpi_name, "npu_dispatch/_C.") ? &ours
               : strstr(info->dlpi_name, "libstdc++.so")   ? &cplusplus
                                                           : nullptr;
  if (!text) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    text->begin = info->dlpi_addr + part.p_vaddr;
    text->end = text->begin + part.p_memsz;
  }
  return 0;
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define REAL(name) static const auto real = next<decltype(&name)>(#name)

extern "C" {

// The n-th call of that kind from now on fails; 0: none does. Returns 0 where
// the extension is not loaded.
int fault_arm(int kind, long n) {
  armed = -1;
  dl_iterate_phdr(find_text, nullptr);
  seen = 0;
  failed = 0;
  left = n;
  armed = kind;
  return ours.end != 0;
}
void fault_disarm() { armed = -1; }
long fault_seen() { return seen; }
long fault_failed() { return failed; }
uintptr_t fault_site(long n) { return n < kSites ? sites[n].load() : 0; }

void* malloc(size_t bytes) noexcept {
  REAL(malloc);
  return fails(kMalloc, CALLER) ? (errno = ENOMEM, nullptr) : real(bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  REAL(aligned_alloc);
  return fails(kMalloc, CALLER) ? (errno = ENOMEM, nullptr)
                                : real(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) noexcept {
  REAL(posix_memalign);
  return fails(kMalloc, CALLER) ? ENOMEM : real(to, alignment, bytes);
}
void* mmap(void* at, size_t bytes, int allow, int flags, int file,
           off_t from) noexcept {
  using F = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = next<F>("mmap");
  return fails(kMmap, CALLER) ? (errno = ENOMEM, reinterpret_cast<void*>(-1))
                              : real(at, bytes, allow, flags, file, from);
}
int pthread_create(pthread_t* to, const pthread_attr_t* how,
                   void* (*run)(void*), void* with) noexcept {
  using F = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = next<F>("pthread_create");
  return fails(kThread, CALLER) ? EAGAIN : real(to, how, run, with);
}
int eventfd(unsigned value, int flags) noexcept {
  using F = int (*)(unsigned, int);
  static const auto real = next<F>("eventfd");
  return fails(kEventfd, CALLER) ? (errno = EMFILE, -1) : real(value, flags);
}
int ftruncate(int file, off_t bytes) noexcept {
  using F = int (*)(int, off_t);
  static const auto real = next<F>("ftruncate");
  return fails(kFile, CALLER) ? (errno = ENOSPC, -1) : real(file, bytes);
}
int posix_fallocate(int file, off_t at, off_t bytes) {
  using F = int (*)(int, off_t, off_t);
  static const auto real = next<F>("posix_fallocate");
  return fails(kFile, CALLER) ? ENOSPC : real(file, at, bytes);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  using F = int (*)(const char*, unsigned);
  static const auto real = next<F>("memfd_create");
  return fails(kFile, CALLER) ? (errno = EMFILE, -1) : real(name, flags);
}
pid_t fork() noexcept {
  using F = pid_t (*)();
  static const auto real = next<F>("fork");
  return fails(kFork, CALLER) ? (errno = EAGAIN, -1) : real();
}

}  // extern "C"

// Bytes that the thread has given back last. Who asks for as many at once gets
// the same piece again, which no lack of memory prevents.
__thread size_t given_back __attribute__((tls_model("initial-exec")));

// By name, since these are functions of C++.
void operator delete(void* memory, size_t bytes) noexcept {
  static const auto real = next<void (*)(void*, size_t)>("_ZdlPvm");
  real(memory, bytes);  // which may be by the function below
  given_back = memory ? bytes : 0;
}
void operator delete(void* memory) noexcept {
  given_back = 0;
  static const auto real = next<void (*)(void*)>("_ZdlPv");
  real(memory);
}
void* operator new(size_t bytes) {
  const bool there = given_back == bytes;
  given_back = 0;
  if (!there && fails(kNew, CALLER)) throw std::bad_alloc();
  static const auto real = next<void* (*)(size_t)>("_Znwm");
  return real(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  if (fails(kNew, CALLER)) throw std::bad_alloc();
  static const auto real =
      next<void* (*)(size_t, size_t)>("_ZnwmSt11align_val_t");
  return real(bytes, size_t(alignment));
}
