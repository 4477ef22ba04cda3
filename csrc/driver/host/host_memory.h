// How much memory this process can be given.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "csrc/base/cgroup.h"

namespace npu {

// What control groups allow, or UINT64_MAX: a limit of "max", or one that is
// not a number, is none. `groups` is the text of /proc/<pid>/cgroup, `root` the
// folder where the groups are mounted.
inline uint64_t cgroup_memory_limit(const std::string& groups,
                                    const std::string& root) {
  uint64_t least = UINT64_MAX;
  for (const auto& [folder, v2] : cgroup_folders(groups, root, "memory")) {
    std::ifstream in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (uint64_t bytes; in >> bytes) least = std::min(least, bytes);
  }
  return least;
}

// The host's memory in bytes, or what the process's control group and the
// groups above it allow, if that is less.
inline uint64_t host_memory() {
  static const uint64_t bytes = [] {
    const uint64_t installed =
        uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    return std::min(installed,
                    cgroup_memory_limit(text_of_file("/proc/self/cgroup"),
                                        "/sys/fs/cgroup"));
  }();
  return bytes;
}

// A device's default share of the host's memory. All `devices` together get
// half; the rest is for the program and for what kernels need besides tensors.
inline uint64_t device_memory(uint64_t host, int devices) {
  return host / 2 / uint64_t(devices > 0 ? devices : 1);
}

}  // namespace npu
