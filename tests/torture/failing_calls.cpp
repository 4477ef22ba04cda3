// Calls that fail when they are told to: preloaded, in front of libc's own.
//
// One kind of call at a time, and of it the n-th; calls of others than the
// extension (and the C++ library on its behalf) are passed on and not counted.
// Of files, the name decides, since Python's calls come from the interpreter; a
// descriptor may be missing for anybody but PyTorch. The product has no seams
// for this.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace {

enum Kind { kNew, kMalloc, kMmap, kThread, kDescriptor, kDisk, kFork };

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

std::atomic<int> error{0};  // of descriptors and of files

// Beginnings of the names of files that the product writes, each with its end.
char folders[4096];

bool is_product_file(const char* name) {
  for (const char* at = folders; *at; at += strlen(at) + 1)
    if (!strncmp(name, at, strlen(at))) return true;
  return false;
}

bool is_product_file(int file) {
  char link[32], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t n = readlink(link, name, sizeof name - 1);
  if (n <= 0) return false;
  name[n] = 0;
  return is_product_file(name);
}

bool is_armed(Kind kind) {
  return armed.load(std::memory_order_relaxed) == kind;
}

// PyTorch's own code, which is not the product's to mend: without /proc/cpuinfo
// its kernels end the process.
bool is_torchs(const void* caller) {
  Dl_info found;
  return dladdr(caller, &found) && found.dli_fname &&
         strstr(found.dli_fname, "/torch/lib/");
}

bool is_counted(Kind kind, const void* caller) {
  if (kind == kDescriptor) return !is_torchs(caller);
  if (kind == kFork || kind == kDisk) return true;
  return ours.has(caller) || (kind == kThread && cplusplus.has(caller));
}

bool fails(Kind kind, const void* caller) {
  if (!is_armed(kind) || !is_counted(kind, caller)) return false;
  const long n = seen.fetch_add(1);
  if (n < kSites) sites[n] = reinterpret_cast<uintptr_t>(caller) - ours.begin;
  if (left.load() <= 0 || left.fetch_sub(1) != 1) return false;
  failed.fetch_add(1);
  return true;
}

// Whether a call that writes to the file fails; `File` is a name or a number.
template <typename File>
bool disk_fails(File file, const void* caller) {
  if (!is_armed(kDisk)) return false;
  const int before = errno;
  const bool counted = is_product_file(file);
  errno = before;
  return counted && fails(kDisk, caller);
}

int refused() {
  errno = error;
  return -1;
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
// What calls for descriptors and files fail with, and which files: beginnings
// of their names, with a line's end between.
void fault_error(int number) { error = number; }
void fault_files(const char* names) {
  memset(folders, 0, sizeof folders);
  strncpy(folders, names, sizeof folders - 2);
  for (char* at = folders; (at = strchr(at, '\n')); ++at) *at = 0;
}
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
  REAL(mmap);
  return fails(kMmap, CALLER) ? (errno = ENOMEM, reinterpret_cast<void*>(-1))
                              : real(at, bytes, allow, flags, file, from);
}
int pthread_create(pthread_t* to, const pthread_attr_t* how,
                   void* (*run)(void*), void* with) noexcept {
  REAL(pthread_create);
  return fails(kThread, CALLER) ? EAGAIN : real(to, how, run, with);
}
#define DESCRIPTOR(name, takes, gives)                          \
  int name takes noexcept {                                     \
    static const auto real = next<int(*) takes>(#name);         \
    return fails(kDescriptor, CALLER) ? refused() : real gives; \
  }
DESCRIPTOR(eventfd, (unsigned value, int flags), (value, flags))
DESCRIPTOR(memfd_create, (const char* name, unsigned flags), (name, flags))
DESCRIPTOR(socket, (int a, int type, int protocol), (a, type, protocol))
DESCRIPTOR(socketpair, (int a, int type, int b, int to[2]), (a, type, b, to))
DESCRIPTOR(epoll_create1, (int flags), (flags))
DESCRIPTOR(pipe2, (int to[2], int flags), (to, flags))
#undef DESCRIPTOR

// Opens a file by libc's function of that name. With `disk`, a new file fails
// as writes to a disk do.
#define OPEN(name, takes, gives, disk)                                         \
  int name takes {                                                             \
    va_list more;                                                              \
    va_start(more, flags);                                                     \
    const mode_t mode =                                                        \
        flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;              \
    va_end(more);                                                              \
    static const auto real = next<int(*) takes>(#name);                        \
    if (fails(kDescriptor, CALLER)) return refused();                          \
    if (disk && flags & O_CREAT && disk_fails(path, CALLER)) return refused(); \
    return real gives;                                                         \
  }
OPEN(open, (const char* path, int flags, ...), (path, flags, mode), true)
OPEN(open64, (const char* path, int flags, ...), (path, flags, mode), true)
OPEN(openat, (int folder, const char* path, int flags, ...),
     (folder, path, flags, mode), false)
OPEN(openat64, (int folder, const char* path, int flags, ...),
     (folder, path, flags, mode), false)
#undef OPEN
#define FOPEN(name)                                \
  FILE* name(const char* path, const char* how) {  \
    using F = FILE* (*)(const char*, const char*); \
    static const auto real = next<F>(#name);       \
    if (fails(kDescriptor, CALLER) ||              \
        (*how != 'r' && disk_fails(path, CALLER))) \
      return refused(), nullptr;                   \
    return real(path, how);                        \
  }
FOPEN(fopen)
FOPEN(fopen64)
#undef FOPEN

// A call that writes to `file`: what it fails with, and whether it may throw.
#define DISK(result, name, takes, gives, failure, throws)       \
  result name takes throws {                                    \
    static const auto real = next<result(*) takes>(#name);      \
    return disk_fails(file, CALLER) ? (failure) : (real gives); \
  }
#define PWRITE(name)                                                        \
  DISK(ssize_t, name, (int file, const void* from, size_t bytes, off_t at), \
       (file, from, bytes, at), refused(), )
#define TRUNCATE(name) \
  DISK(int, name, (int file, off_t bytes), (file, bytes), refused(), noexcept)
#define ALLOCATE(name)                                                  \
  DISK(int, name, (int file, off_t at, off_t bytes), (file, at, bytes), \
       error.load(), )
DISK(ssize_t, write, (int file, const void* from, size_t bytes),
     (file, from, bytes), refused(), )
DISK(ssize_t, writev, (int file, const iovec* from, int parts),
     (file, from, parts), refused(), )
PWRITE(pwrite)
PWRITE(pwrite64)
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)
DISK(int, fsync, (int file), (file), refused(), )
#undef PWRITE
#undef TRUNCATE
#undef ALLOCATE
#undef DISK
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return disk_fails(to, CALLER) ? refused() : real(from, to);
}
pid_t fork() noexcept {
  REAL(fork);
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
