#include "csrc/placement/this_machine.h"

#include <sched.h>
#include <unistd.h>

#include <new>

#include "csrc/base/cgroup.h"
#include "csrc/base/env.h"

namespace npu {
namespace {

constexpr int kMostSharers = 4096;

// Those of this process's first thread, and of the process that started it:
// torchrun, where it has started the ranks, may run on the CPUs of all.
int cpus_of_all_ranks() {
  cpu_set_t own, all;
  CPU_ZERO(&all);
  for (const pid_t process : {getpid(), getppid()})
    if (sched_getaffinity(process, sizeof own, &own) == 0)
      CPU_OR(&all, &all, &own);
  return CPU_COUNT(&all);
}

Machine this_machine() {
  Machine machine;
  machine.cpus = usable_cores();
  machine.quota =
      cgroup_quota(text_of_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  machine.sharers = int(env_int("LOCAL_WORLD_SIZE", 1, 1, kMostSharers));
  machine.seed = uint32_t(getpid());
  machine.cpus_of_all = cpus_of_all_ranks();
  return machine;
}

}  // namespace

Policy& policy() {
  // Never destroyed: launchers outlive static destruction.
  static Policy* const instance =
      new Policy(this_machine(),
                 env_choice("NPU_DISPATCH_PLACEMENT", {"auto", "off"}) == 0);
  return *instance;
}

const Topology& topology() {
  static const Topology unknown;
  try {
    static const Topology* const instance = new Topology(read_topology("/sys"));
    return *instance;
  } catch (const std::bad_alloc&) {
    return unknown;  // for now: a launcher asks, whose thread nobody can tell
  }
}

int usable_cores() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  return CPU_COUNT(&cpus);
}

void cpus_have_changed(const cpu_set_t& allowed) {
  // Where this thread is bound to one CPU, its process may not be: the CPUs of
  // the first thread count, too.
  cpu_set_t first, all = allowed;
  if (sched_getaffinity(getpid(), sizeof first, &first) == 0)
    CPU_OR(&all, &allowed, &first);
  if (const int cpus = CPU_COUNT(&all); cpus > 0) policy().set_cpus(cpus);
}

}  // namespace npu
