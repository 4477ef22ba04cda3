#include "csrc/driver/host/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace npu {
namespace {

// "max" and what is no number are no limit.
uint64_t limit_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t bytes = 0;
  return in >> bytes ? bytes : UINT64_MAX;
}

// The least limit of a group and those above it, which are the folders above.
uint64_t least_limit(const std::string& mount, std::string group,
                     const char* file) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    least = std::min(least, limit_in(mount + group + "/" + file));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

std::string text_of(const char* file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

// A line is "number:controllers:group"; version 2 has number 0 and no
// controllers. Within a container the group may be that of the host, and the
// limit is the mount's own: the walk upwards ends there.
uint64_t cgroup_memory_limit(const std::string& groups,
                             const std::string& root) {
  uint64_t least = UINT64_MAX;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second =
        first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers == ",,") {
      least = std::min(least, least_limit(root, group, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(
          least, least_limit(root + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

uint64_t host_memory() {
  static const uint64_t bytes = [] {
    const uint64_t installed =
        uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    return std::min(installed, cgroup_memory_limit(text_of("/proc/self/cgroup"),
                                                   "/sys/fs/cgroup"));
  }();
  return bytes;
}

}  // namespace npu
