#include "csrc/placement/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "csrc/base/cgroup.h"
#include "csrc/base/env.h"

namespace npu {
namespace {

constexpr int kMostSharers = 4096;
constexpr uint64_t kUs = 1000;
// The largest number of microseconds that is believed: 1000 s, where a group's
// period is a second at most.
constexpr int64_t kMostUs = 1'000'000'000;

// As parse_cpu_max() reads it.
std::string text_of_quota(const CgroupFolder& folder) {
  if (folder.v2) return text_of_file(folder.path + "/cpu.max");
  return text_of_file(folder.path + "/cpu.cfs_quota_us") + " " +
         text_of_file(folder.path + "/cpu.cfs_period_us");
}

bool tighter(const Quota& a, const Quota& b) {
  if (!a.ns || !b.ns) return a.ns > 0;
  return double(a.ns) / double(a.period_ns) <
         double(b.ns) / double(b.period_ns);
}

}  // namespace

Quota parse_cpu_max(const std::string& text) {
  std::istringstream in(text);
  int64_t quota, period;
  if (!(in >> quota)) return {};  // "max", or no such file
  if (!(in >> period)) period = 100'000;
  if (quota <= 0 || period <= 0 || quota > kMostUs || period > kMostUs)
    return {};
  return {uint64_t(quota) * kUs, uint64_t(period) * kUs};
}

Quota cgroup_quota(const std::string& groups, const std::string& root) {
  Quota least;
  for (const CgroupFolder& folder : cgroup_folders(groups, root, "cpu"))
    if (const Quota quota = parse_cpu_max(text_of_quota(folder));
        tighter(quota, least))
      least = quota;
  return least;
}

Machine this_machine() {
  cpu_set_t own, all, of;
  CPU_ZERO(&own);
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof own, &own);
  // The CPUs of this process's first thread, and of the process that started
  // it: torchrun, where it has started the ranks, may run on the CPUs of all.
  for (const pid_t process : {getpid(), getppid()})
    if (sched_getaffinity(process, sizeof of, &of) == 0)
      CPU_OR(&all, &all, &of);
  return {std::max(CPU_COUNT(&own), 1),
          cgroup_quota(text_of_file("/proc/self/cgroup"), "/sys/fs/cgroup"),
          int(env_int("LOCAL_WORLD_SIZE", 1, 1, kMostSharers)),
          CPU_COUNT(&all)};
}

}  // namespace npu
