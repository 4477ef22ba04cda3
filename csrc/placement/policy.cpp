#include "csrc/placement/policy.h"

#include <algorithm>
#include <climits>

#include "csrc/placement/tuning.h"

namespace npu {
namespace {

using namespace tuning;

// Gives each process another order of the CPUs.
uint32_t mixed(uint32_t cpu, uint32_t seed) {
  uint32_t x = cpu * 0x9e3779b9u ^ seed * 0x85ebca6bu;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// This process's part of the time that all of its group may spin.
uint64_t spin_budget(const Machine& machine) {
  return machine.quota.ns / kSpinPart / uint64_t(std::max(machine.sharers, 1));
}

// As many CPUs as the quota keeps busy.
int quota_cpus(const Quota& quota) {
  if (quota.ns == 0) return INT_MAX;
  return int((quota.ns + quota.period_ns - 1) / quota.period_ns);
}

// This process's part of the CPUs, which it may be bound to already.
int part_of(const Machine& machine) {
  if (machine.sharers <= 1) return INT_MAX;
  const int all = std::min(std::max(machine.cpus_of_all, machine.cpus),
                           quota_cpus(machine.quota));
  return std::max(1, std::min(all / machine.sharers, machine.cpus));
}

}  // namespace

Policy::Policy(const Machine& machine, bool on)
    : on_(on),
      limited_(machine.quota.ns > 0),
      seed_(machine.seed),
      part_(part_of(machine)),
      cpus_(machine.cpus),
      quota_cpus_(quota_cpus(machine.quota)),
      spins_(spin_budget(machine), limited_ ? machine.quota.period_ns : 1),
      fences_(kMostFences, kFenceWindowNs) {}

int Policy::take_seat() {
  for (int seat = 0; on_ && seat < kSeats; ++seat)
    if (!seats_[seat].used.exchange(true, std::memory_order_relaxed))
      return seat;
  return -1;
}

void Policy::leave_seat(int seat) {
  if (seat < 0) return;
  seats_[seat].cpu.store(-1, std::memory_order_relaxed);
  seats_[seat].used.store(false, std::memory_order_relaxed);
}

int Policy::works_on(int seat, uint64_t now) const {
  const Seat& s = seats_[seat];
  return s.looked.load(std::memory_order_relaxed) + kAtWorkNs > now
             ? s.cpu.load(std::memory_order_relaxed)
             : -1;
}

bool Policy::crowded(int seat, uint64_t now, int cpu) {
  if (seat < 0) return false;
  seats_[seat].cpu.store(cpu, std::memory_order_relaxed);
  seats_[seat].looked.store(now, std::memory_order_relaxed);
  // The launcher in the later seat moves, so that not both do.
  for (int other = 0; cpu >= 0 && other < seat; ++other)
    if (works_on(other, now) == cpu) return true;
  return false;
}

// Of the CPUs on which no launcher works, the producer's own is the last
// choice. Among the others a near memory node comes first, then a core that
// nobody shares.
int Policy::place(int seat, uint64_t now, const Whereabouts& at,
                  const cpu_set_t& allowed, const Topology& topology) {
  if (!crowded(seat, now, at.cpu)) return -1;
  cpu_set_t taken, cores;
  CPU_ZERO(&taken);
  CPU_ZERO(&cores);
  const auto shares_core = [&](int cpu) {
    CPU_SET(size_t(topology.core[cpu]), &cores);
  };
  for (int other = 0; other < kSeats; ++other) {
    const int cpu = other == seat ? -1 : works_on(other, now);
    if (cpu < 0 || cpu >= CPU_SETSIZE) continue;
    CPU_SET(size_t(cpu), &taken);
    shares_core(cpu);
  }
  const bool known = at.producer >= 0 && at.producer < CPU_SETSIZE;
  if (known) shares_core(at.producer);
  const int home = known ? at.producer : at.cpu;

  int best = -1;
  uint64_t least = UINT64_MAX;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(size_t(cpu), &allowed) || CPU_ISSET(size_t(cpu), &taken))
      continue;
    const bool shared = CPU_ISSET(size_t(topology.core[cpu]), &cores);
    const uint64_t cost =
        uint64_t(cpu == at.producer) << 63 |
        uint64_t(std::clamp(topology.distance(home, cpu), 0, 0xffff)) << 40 |
        uint64_t(shared) << 32 | mixed(uint32_t(cpu), seed_);
    if (cost >= least) continue;
    least = cost;
    best = cpu;
  }
  if (best >= 0) seats_[seat].cpu.store(best, std::memory_order_relaxed);
  return best;
}

bool Policy::woken_on(const cpu_set_t& allowed, int waker, cpu_set_t& on) {
  if (waker < 0 || waker >= CPU_SETSIZE) return false;
  on = allowed;
  CPU_CLR(size_t(waker), &on);
  return CPU_COUNT(&on) > 0 && !CPU_EQUAL(&on, &allowed);
}

int Policy::share(int all, int budget, int device, int stream) {
  int cores = std::min(budget, all);
  for (const int limit : {device, stream})
    if (limit > 0) cores = std::min(cores, limit);
  return std::max(1, cores);
}

bool Policy::needs_all(int urgent, int budget) const {
  const int cpus = cpus_.load(std::memory_order_relaxed);
  return urgent > 0 && urgent >= std::min({cpus, quota_cpus_, budget});
}

uint64_t Policy::spin(uint64_t now, uint64_t ns) {
  if (!spins()) return 0;
  return limited_ ? spins_.take(now, ns) : ns;
}

void Policy::unused_spin(uint64_t taken_at, uint64_t ns) {
  if (limited_) spins_.give_back(taken_at, ns);
}

}  // namespace npu
