// What the policy is told of a machine. Plain data and parsers of text; reading
// this machine is this_machine.h's.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace npu {

// CPU time that all threads of a group may use in each period; `ns` 0: as much
// as there is.
struct Quota {
  uint64_t ns = 0, period_ns = 0;
};

struct Machine {
  int cpus = 1;     // that the process may run on
  Quota quota;      // of the process's group
  int sharers = 1;  // processes of this program among which it is divided
  // Differs between processes, so that not all prefer the same CPUs.
  uint32_t seed = 0;
};

// Which CPUs are threads of one core, and how far their memories are apart.
struct Topology {
  Topology();
  // Each CPU a core of its own, all in node 0, until told otherwise.
  std::array<int16_t, CPU_SETSIZE> core, node;
  std::vector<std::vector<int>> distances;  // between nodes; empty: all alike

  int distance(int cpu, int other) const;
};

// A list as "0-3,8,10-11"; what is no such list has no CPUs.
std::vector<int> parse_cpus(const std::string& list);
// The text of cpu.max: "150000 100000" or "max 100000", in microseconds.
Quota parse_cpu_max(const std::string& text);
// The tightest quota of the process's group and those above it. As
// cgroup_folders().
Quota cgroup_quota(const std::string& groups, const std::string& root);
// Of the CPUs that are online; `sys` is where /sys is mounted.
Topology read_topology(const std::string& sys);

}  // namespace npu
