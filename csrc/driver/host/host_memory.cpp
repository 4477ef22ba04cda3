#include "csrc/driver/host/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "csrc/base/cgroup.h"

namespace npu {
namespace {

// The limit in a file; "max", or anything that is not a number, is no limit.
uint64_t limit_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t bytes = 0;
  return in >> bytes ? bytes : UINT64_MAX;
}

}  // namespace

uint64_t cgroup_memory_limit(const std::string& groups,
                             const std::string& root) {
  uint64_t least = UINT64_MAX;
  for (const auto& [folder, v2] : cgroup_folders(groups, root, "memory"))
    least = std::min(least, limit_in(folder + (v2 ? "/memory.max"
                                                  : "/memory.limit_in_bytes")));
  return least;
}

uint64_t host_memory() {
  static const uint64_t bytes = [] {
    const uint64_t installed =
        uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    return std::min(installed,
                    cgroup_memory_limit(text_of_file("/proc/self/cgroup"),
                                        "/sys/fs/cgroup"));
  }();
  return bytes;
}

}  // namespace npu
