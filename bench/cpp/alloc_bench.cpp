// What a hit in the allocator's cache costs, next to malloc and bare locks.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>

#include "bench/cpp/harness.h"
#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/sole_lock.h"

namespace {

constexpr int kRounds = 200'000;

// Keeps the compiler from dropping a malloc that is freed at once.
template <typename T>
T* opaque(T* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

// The fastest of several runs: ns per call of `body`.
template <typename Body>
double best_ns(Body body) {
  double best = 1e9;
  const int repeats = npu::bench::repetitions(15, 5);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const uint64_t start = npu::now_ns();
    for (int i = 0; i < kRounds; ++i) body();
    best = std::min(best, double(npu::now_ns() - start) / kRounds);
  }
  return best;
}

void report(const std::string& name, double ns, double malloc_ns) {
  printf("{\"case\": \"%s\", \"ns\": %.1f, \"vs_malloc\": %.2f}\n",
         name.c_str(), ns, ns / malloc_ns);
}

template <typename Lock>
double lock_ns() {
  static Lock lock;
  return best_ns([] {
    lock.lock();
    opaque(&lock);
    lock.unlock();
  });
}

}  // namespace

int main(int argc, char** argv) {
  npu::bench::begin(argc, argv, "alloc_bench");
  npu::CachingAllocator memory(0);
  npu::Stream& stream = *npu::find_stream(0, 0);
  npu::OutOfMemory why;
  // A bystander, so that a free never leaves a whole segment.
  memory.allocate(512, stream, why);
  for (size_t bytes : {size_t{512}, size_t{4096}, size_t{65536},
                       size_t{2} << 20, size_t{8} << 20}) {
    const double bare = best_ns([&] { free(opaque(malloc(bytes))); });
    const std::string of = "_" + std::to_string(bytes);
    report("malloc_free" + of, bare, bare);
    report("allocate_free" + of,
           best_ns([&] { memory.free(memory.allocate(bytes, stream, why)); }),
           bare);
    npu::Block* held[16];
    report("allocate_16_free_16" + of,
           best_ns([&, n = 0]() mutable {
             npu::Block*& slot = held[n % 16];
             if (n / 16 % 2) {
               memory.free(slot);
             } else {
               slot = memory.allocate(bytes, stream, why);
             }
             if (++n == 32) n = 0;
           }) * 2,
           bare);
  }
  const double bare = best_ns([] { free(opaque(malloc(512))); });
  report("sleep_lock", lock_ns<npu::SleepLock>(), bare);
  report("std_mutex", lock_ns<std::mutex>(), bare);
}
