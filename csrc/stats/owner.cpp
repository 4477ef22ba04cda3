#include "csrc/stats/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "csrc/base/cgroup.h"
#include "csrc/stats/layout.h"

namespace npu {

uint64_t process_start(pid_t pid) {
  // Empty, too, where the process ends before the file has been read.
  const std::string text =
      text_of_file("/proc/" + std::to_string(pid) + "/stat");
  // The command, field 2, may hold spaces; it ends at the last ')'.
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(command_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return strtoull(field.c_str(), nullptr, 10);
}

uint64_t pid_namespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) ? 0 : uint64_t(info.st_ino);
}

bool in_memory(const std::string& directory) {
  struct statfs found;
  if (statfs(directory.c_str(), &found)) return false;
  const auto kind = uint32_t(found.f_type);
  return kind == TMPFS_MAGIC || kind == RAMFS_MAGIC;
}

bool read_segment_owner(int file, Owner& owner) {
  SegmentHeader header;
  if (read(file, &header, sizeof header) != sizeof header ||
      memcmp(header.magic, kLayoutMagic, sizeof kLayoutMagic) != 0 ||
      header.version != kLayoutVersion)
    return false;
  owner = {header.pid, header.process_start, header.pid_namespace};
  return true;
}

namespace {

// The name may be that of a FIFO or a link: neither is followed or waited for.
bool owner_of(int directory, const char* name, ReadOwner read_owner,
              Owner& owner) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int file = openat(directory, name, kFlags);
  if (file < 0) return false;
  const bool whole = read_owner(file, owner);
  close(file);
  return whole;
}

// Whether the owner is known to be gone: a process that has no descriptor left
// cannot read when another one started.
bool is_gone(const Owner& owner) {
  const auto pid = pid_t(owner.pid);
  if (const uint64_t start = process_start(pid))
    return start != owner.process_start;
  return kill(pid, 0) && errno == ESRCH;
}

// Renames a dead process's file. Its time from now on is that of this
// discovery.
void lay_aside(int directory, const std::string& name) {
  utimensat(directory, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  renameat(directory, name.c_str(), directory, (name + kDeadSuffix).c_str());
}

using Dead = std::pair<int64_t, std::string>;  // when found (seconds), name

void remove_old(int directory, std::vector<Dead>& dead, size_t kept) {
  std::sort(dead.begin(), dead.end(), std::greater<>());
  const int64_t oldest = int64_t(time(nullptr)) - kDeadKeptS;
  for (size_t i = 0; i < dead.size(); ++i)
    if (i >= kept || dead[i].first < oldest)
      unlinkat(directory, dead[i].second.c_str(), 0);
}

}  // namespace

bool is_of_another_namespace(const std::string& path, ReadOwner read_owner) {
  Owner owner;
  return owner_of(AT_FDCWD, path.c_str(), read_owner, owner) &&
         owner.pid_namespace != pid_namespace();
}

void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept) {
  DIR* files = opendir(directory.c_str());
  if (!files) return;
  const uint64_t here = pid_namespace();
  const int folder = dirfd(files);
  std::vector<std::string> killed;
  std::vector<Dead> dead;
  while (const dirent* file = readdir(files)) {
    const std::string name = file->d_name;
    Owner owner;
    struct stat info;
    if (name.ends_with(kDeadSuffix)) {
      if (!fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW))
        dead.emplace_back(int64_t(info.st_mtime), name);
    } else if (owner_of(folder, name.c_str(), read_owner, owner) && here &&
               owner.pid_namespace == here && is_gone(owner)) {
      killed.push_back(name);
    }
  }
  for (const std::string& name : killed) {
    lay_aside(folder, name);
    dead.emplace_back(int64_t(time(nullptr)), name + kDeadSuffix);
  }
  remove_old(folder, dead, kept);
  closedir(files);
}

}  // namespace npu
