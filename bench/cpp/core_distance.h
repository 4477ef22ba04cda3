// How far apart two CPUs are, which bounds what a queue between them can do. A
// hypervisor moves the CPUs of a virtual machine within seconds, from two
// threads of one core to different sockets, which changes the distance tenfold.
//
// The caller of each of these runs on another CPU than `cpu`.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "csrc/base/align.h"
#include "csrc/base/clock.h"

namespace npu::bench {

inline constexpr double kFarRoundTrip = 190, kSharedCore = 1.8;

// Two lines: the adjacent-line prefetcher pairs them.
struct alignas(2 * kCacheLine) Line {
  std::atomic<int> value{0};
};

inline void await(const Line& line, int value) {
  while (line.value.load(std::memory_order_acquire) != value) {
  }
}

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

template <typename Body>
std::thread on_cpu(int cpu, Body body) {
  return std::thread([=] {
    pin(cpu);
    body();
  });
}

// Ticks that some microseconds of arithmetic take which keep every unit of a
// core busy; the least of several runs.
inline double arithmetic() {
  uint64_t best = UINT64_MAX;
  for (int tries = 0; tries < 20; ++tries) {
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
    const uint64_t start = ticks();
    for (int i = 0; i < 20'000; ++i) {
      ++a, ++b, ++c, ++d, ++e, ++f;
      asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    best = std::min(best, ticks() - start);
  }
  return double(best);
}

// Median nanoseconds for one cache line to go from the calling thread to `cpu`
// and back; takes about a millisecond.
inline double line_round_trip(int cpu) {
  constexpr int kBlocks = 9, kTrips = 1000;
  Line line;
  std::thread other = on_cpu(cpu, [&line] {
    for (int i = 1; i <= kBlocks * kTrips; ++i) {
      await(line, 2 * i - 1);
      line.value.store(2 * i, std::memory_order_release);
    }
  });
  std::array<double, kBlocks> blocks;
  int i = 0;
  for (double& block : blocks) {
    const uint64_t start = ticks();
    for (int k = 0; k < kTrips; ++k) {
      ++i;
      line.value.store(2 * i - 1, std::memory_order_release);
      await(line, 2 * i);
    }
    block = double(ticks() - start) * ns_per_tick() / kTrips;
  }
  other.join();
  std::nth_element(blocks.begin(), blocks.begin() + kBlocks / 2, blocks.end());
  return blocks[kBlocks / 2];
}

// How much longer arithmetic takes here while `cpu` computes as well: 2 on the
// two threads of one core.
inline double slowdown_beside(int cpu) {
  enum { kStarting, kComputing, kEnough };
  Line stage;
  std::thread other = on_cpu(cpu, [&stage] {
    stage.value.store(kComputing, std::memory_order_release);
    while (stage.value.load(std::memory_order_acquire) != kEnough) arithmetic();
  });
  await(stage, kComputing);
  const double together = arithmetic();
  stage.value.store(kEnough, std::memory_order_release);
  other.join();
  return together / arithmetic();
}

// Whether the two are different cores that share a last-level cache, as in the
// project's published figures. Takes about two milliseconds.
inline bool is_near(int cpu) {
  return line_round_trip(cpu) < kFarRoundTrip &&
         slowdown_beside(cpu) < kSharedCore;
}

}  // namespace npu::bench
