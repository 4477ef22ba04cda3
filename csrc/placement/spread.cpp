#include "csrc/placement/spread.h"

#include <sched.h>

#include <atomic>

namespace npu {
namespace {

constexpr int kSlots = 64;
constexpr uint64_t kBetweenLooksNs = 500'000;
// Who has not looked for longer is not at work.
constexpr uint64_t kAtWorkNs = 20'000'000;

// Relaxed throughout: one that is out of date costs time only.
struct Slot {
  std::atomic<bool> used{false};
  std::atomic<int> cpu{-1};         // at the last look
  std::atomic<uint64_t> looked{0};  // when
};
Slot slots[kSlots];

// Whether one of the first `n` launchers, but for `self`, works on `cpu`.
bool taken(int cpu, int n, int self, uint64_t now) {
  for (int i = 0; i < n; ++i)
    if (i != self && slots[i].cpu.load(std::memory_order_relaxed) == cpu &&
        slots[i].looked.load(std::memory_order_relaxed) + kAtWorkNs > now)
      return true;
  return false;
}

void move_to(int cpu, const cpu_set_t& allowed) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

Seat::Seat() {
  for (int i = 0; i < kSlots && slot_ < 0; ++i)
    if (!slots[i].used.exchange(true, std::memory_order_relaxed)) slot_ = i;
}

Seat::~Seat() {
  if (slot_ < 0) return;
  slots[slot_].cpu.store(-1, std::memory_order_relaxed);
  slots[slot_].used.store(false, std::memory_order_relaxed);
}

void Seat::look(uint64_t now) {
  if (slot_ < 0 || now < next_) return;
  next_ = now + kBetweenLooksNs;
  if (!crowded(now, sched_getcpu())) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (const int cpu = take_free(now, allowed); cpu >= 0) move_to(cpu, allowed);
}

bool Seat::crowded(uint64_t now, int cpu) {
  slots[slot_].cpu.store(cpu, std::memory_order_relaxed);
  slots[slot_].looked.store(now, std::memory_order_relaxed);
  // The one in the later slot goes, so that not both do.
  return cpu >= 0 && taken(cpu, slot_, slot_, now);
}

int Seat::take_free(uint64_t now, const cpu_set_t& allowed) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || taken(cpu, kSlots, slot_, now)) continue;
    slots[slot_].cpu.store(cpu, std::memory_order_relaxed);
    return cpu;
  }
  return -1;
}

}  // namespace npu
