// How much memory this process can be given.
#pragma once

#include <cstdint>
#include <string>

namespace npu {

// The host's memory in bytes, or what the process's control group and the
// groups above it allow, if that is less.
uint64_t host_memory();

// What control groups allow, or UINT64_MAX. `groups` is the text of
// /proc/<pid>/cgroup, `root` the folder where the groups are mounted.
uint64_t cgroup_memory_limit(const std::string& groups,
                             const std::string& root);

// A device's default share of the host's memory. All `devices` together get
// half; the rest is for the program and for what kernels need besides tensors.
inline uint64_t device_memory(uint64_t host, int devices) {
  return host / 2 / uint64_t(devices > 0 ? devices : 1);
}

}  // namespace npu
