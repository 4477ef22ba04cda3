#include "csrc/base/process_id.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "csrc/base/cgroup.h"

namespace npu {

namespace {

// A number in /proc/<pid>/stat; 0 when there is no such process.
uint64_t stat_field(pid_t pid, int number) {
  const std::string folder = pid == getpid() ? "self" : std::to_string(pid);
  // Empty, too, where the process ends before the file has been read.
  const std::string text = text_of_file("/proc/" + folder + "/stat");
  // The command, field 2, may hold spaces; it ends at the last ')'.
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(command_end + 1));
  std::string field;
  for (int i = 3; i <= number; ++i) fields >> field;
  return strtoull(field.c_str(), nullptr, 10);
}

}  // namespace

uint64_t process_start(pid_t pid) { return stat_field(pid, 22); }
uint64_t stack_start(pid_t pid) { return stat_field(pid, 28); }
pid_t parent_of(pid_t pid) { return pid_t(stat_field(pid, 4)); }

uint64_t pid_namespace() {
  char self[32] = {};
  struct stat info;
  if (readlink("/proc/self", self, sizeof self - 1) < 0 ||
      self != std::to_string(getpid()) || stat("/proc/self/ns/pid", &info))
    return 0;
  return uint64_t(info.st_ino);
}

}  // namespace npu
