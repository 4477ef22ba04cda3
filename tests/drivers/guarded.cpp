// A driver for tests: the host's, whose memory can be touched only while a
// kernel runs or the engine has asked for it (host_access). A read or write by
// somebody else, as by an operator that reads its arguments on the calling
// thread, beside the queue, is noted and then let through.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/driver/driver.h"

namespace {

using npu::host_driver;

class Guard {
 public:
  // Never destroyed: threads of the engine outlive static objects.
  static Guard& get() {
    static Guard* const guard = new Guard;
    return *guard;
  }

  void add(void* segment, size_t bytes) {
    if (!segment) return;
    std::lock_guard lock(mutex_);
    segments_[static_cast<char*>(segment)] = bytes;
    if (!users_) protect(PROT_NONE);
  }
  void remove(void* segment) {
    std::lock_guard lock(mutex_);
    segments_.erase(static_cast<char*>(segment));
  }
  void enter() {
    std::lock_guard lock(mutex_);
    if (!users_++) protect(PROT_READ | PROT_WRITE);
  }
  void leave() {
    std::lock_guard lock(mutex_);
    if (!--users_) protect(PROT_NONE);
  }

  std::string take() {
    std::lock_guard lock(mutex_);
    std::string all;
    for (const auto& stack : std::exchange(stacks_, {})) {
      char** const names = backtrace_symbols(stack.data(), int(stack.size()));
      for (size_t i = 0; names && i < stack.size(); ++i)
        all += std::string(names[i]) + "\n";
      free(names);
      all += "\n";
    }
    return all;
  }

 private:
  static constexpr size_t kMost = 64, kFrames = 24;

  Guard() {
    void* first[1];
    backtrace(first, 1);  // loads what it needs, which a handler may not
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      if (!get().touched(static_cast<char*>(info->si_addr))) get().pass_on();
    };
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
  }

  // Whoever touches a segment does not hold the mutex.
  bool touched(const char* address) {
    std::lock_guard lock(mutex_);
    auto after = segments_.upper_bound(const_cast<char*>(address));
    if (after == segments_.begin()) return false;
    --after;
    if (address >= after->first + after->second) return false;
    if (users_) return true;  // allowed by now
    if (stacks_.size() < kMost) {
      std::vector<void*> stack(kFrames);
      stack.resize(size_t(backtrace(stack.data(), kFrames)));
      stacks_.push_back(std::move(stack));
    }
    protect(PROT_READ | PROT_WRITE);  // until a kernel has run
    return true;
  }

  // The access that brought the signal is repeated, under the handler that was
  // there before.
  void pass_on() { sigaction(SIGSEGV, &before_, nullptr); }

  void protect(int how) {
    for (const auto& [segment, bytes] : segments_)
      mprotect(segment, bytes, how);
  }

  std::mutex mutex_;
  std::map<char*, size_t> segments_;
  int users_ = 0;
  std::vector<std::vector<void*>> stacks_;
  struct sigaction before_ = {};
};

struct Allowed {
  Allowed() { Guard::get().enter(); }
  ~Allowed() { Guard::get().leave(); }
};

void* segment_alloc(int device, size_t bytes) {
  void* const segment = host_driver().segment_alloc(device, bytes);
  Guard::get().add(segment, bytes);
  return segment;
}

void segment_free(int device, void* segment, size_t bytes) {
  Guard::get().remove(segment);
  host_driver().segment_free(device, segment, bytes);
}

int segment_share(int device, void* segment, size_t bytes) {
  const Allowed allowed;
  return host_driver().segment_share(device, segment, bytes);
}

void* segment_open(int device, int handle, size_t bytes) {
  void* const segment = host_driver().segment_open(device, handle, bytes);
  Guard::get().add(segment, bytes);
  return segment;
}

int launch(npu_queue, const npu_kernel* kernel, const uint64_t* words,
           npu_failure* failure) {
  const Allowed allowed;
  return kernel->run(kernel, words, failure);
}

void host_access(int begins) {
  begins ? Guard::get().enter() : Guard::get().leave();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const npu_driver* NPU_DRIVER_ENTRY() {
  static const npu_driver table = [] {
    npu_driver t = host_driver();
    t.name = "guarded";
    t.segment_alloc = segment_alloc;
    t.segment_free = segment_free;
    t.segment_share = segment_share;
    t.segment_open = segment_open;
    t.launch = launch;
    t.host_access = host_access;
    return t;
  }();
  return &table;
}

// Who has touched device memory since the last call, as stacks; "" for nobody.
// Valid until the next call.
extern "C" [[gnu::visibility("default")]] const char* npu_guarded_take() {
  static std::string* const text = new std::string;
  *text = Guard::get().take();
  return text->c_str();
}

// A program that is tested has nobody who asks.
[[gnu::destructor]] static void report_at_exit() {
  const std::string stacks = Guard::get().take();
  if (stacks.empty()) return;
  fprintf(stderr, "device memory was touched outside of a kernel:\n%s",
          stacks.c_str());
  fflush(stderr);
  _exit(3);
}
