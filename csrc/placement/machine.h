// What the policy is told of a machine: plain data, parsers of text, and this
// machine itself.
#pragma once

#include <cstdint>
#include <string>

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
  // That the sharers together may run on. Where whoever started them has bound
  // each to CPUs of its own, that is more than this process may.
  int cpus_of_all = 0;
};

// The text of cpu.max: "150000 100000" or "max 100000", in microseconds.
Quota parse_cpu_max(const std::string& text);
// The tightest quota of the process's group and the groups above it. The
// arguments are those of cgroup_folders().
Quota cgroup_quota(const std::string& groups, const std::string& root);

// The machine as it is now, for this process and the calling thread.
Machine this_machine();

}  // namespace npu
