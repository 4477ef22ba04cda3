#include "csrc/stats/owner.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "csrc/stats/layout.h"

namespace npu {

uint64_t process_start(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
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

namespace {

// Of a segment of this version. A name may be a FIFO's or a link's, for which
// nobody waits.
bool read_header(int directory, const char* name, SegmentHeader& header) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = openat(directory, name, kFlags);
  if (fd < 0) return false;
  const bool whole = read(fd, &header, sizeof header) == sizeof header;
  close(fd);
  return whole && !memcmp(header.magic, kLayoutMagic, sizeof kLayoutMagic) &&
         header.version == kLayoutVersion;
}

}  // namespace

bool is_of_another_namespace(const std::string& path) {
  SegmentHeader header;
  return read_header(AT_FDCWD, path.c_str(), header) &&
         header.pid_namespace != pid_namespace();
}

void remove_abandoned(const std::string& directory) {
  DIR* files = opendir(directory.c_str());
  if (!files) return;
  const uint64_t here = pid_namespace();
  while (const dirent* file = readdir(files)) {
    SegmentHeader header;
    if (!read_header(dirfd(files), file->d_name, header) ||
        header.pid_namespace != here || !here)
      continue;
    if (process_start(pid_t(header.pid)) != header.process_start)
      unlinkat(dirfd(files), file->d_name, 0);
  }
  closedir(files);
}

}  // namespace npu
