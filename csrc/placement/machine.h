// What the policy is told of a machine: plain data, and parsers of text.
// this_machine.h reads the machine itself.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace npu {

// The CPU time that all threads of a group together may use in each period.
// `ns` is 0 where there is no limit.
struct Quota {
  uint64_t ns = 0, period_ns = 0;
};

struct Machine {
  int cpus = 1;     // that the process may run on
  Quota quota;      // of the process's group
  int sharers = 1;  // processes of this program that share quota and CPUs
  // Differs between processes, so that not all prefer the same CPUs.
  uint32_t seed = 0;
  // That the sharers together may run on. Where whoever started them has bound
  // each to CPUs of its own, that is more than this process may.
  int cpus_of_all = 0;
};

// Which CPUs are threads of one core, and how far their memories are apart.
struct Topology {
  Topology();
  // At first each CPU is a core of its own, and all are in node 0.
  std::array<int16_t, CPU_SETSIZE> core, node;
  std::vector<std::vector<int>> distances;  // between nodes; empty: all alike

  int distance(int cpu, int other) const;
};

// The CPUs of a list such as "0-3,8,10-11"; none where it is no such list.
std::vector<int> parse_cpus(const std::string& list);
// The text of cpu.max: "150000 100000" or "max 100000", in microseconds.
Quota parse_cpu_max(const std::string& text);
// The tightest quota of the process's group and the groups above it. The
// arguments are those of cgroup_folders().
Quota cgroup_quota(const std::string& groups, const std::string& root);
// The topology of the CPUs that are online. `sys` is where /sys is mounted.
Topology read_topology(const std::string& sys);

}  // namespace npu
