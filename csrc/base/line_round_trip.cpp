#include "csrc/base/line_round_trip.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "csrc/base/align.h"
#include "csrc/base/clock.h"

namespace npu {
namespace {

constexpr int kBlocks = 9, kTrips = 1000;

// Two lines: the adjacent-line prefetcher pairs them.
struct alignas(2 * kCacheLine) Line {
  std::atomic<int> value{0};
};

void await(const Line& line, int value) {
  while (line.value.load(std::memory_order_acquire) != value) {
  }
}

void send_back(Line& line, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  for (int i = 1; i <= kBlocks * kTrips; ++i) {
    await(line, 2 * i - 1);
    line.value.store(2 * i, std::memory_order_release);
  }
}

}  // namespace

double line_round_trip(int cpu) {
  Line line;
  std::thread other([&] { send_back(line, cpu); });
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

}  // namespace npu
