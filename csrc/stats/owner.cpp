#include "csrc/stats/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "csrc/stats/layout.h"

namespace npu {

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
int open_file(int directory, const char* name) {
  return openat(directory, name,
                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

struct flock whole_file(short kind) {
  struct flock what {};
  what.l_type = kind;
  what.l_whence = SEEK_SET;
  return what;
}

// Asks for the lock without taking it, which could stop its owner from doing
// so.
Life life_by_lock(int file) {
  struct flock what = whole_file(F_RDLCK);
  if (fcntl(file, F_OFD_GETLK, &what)) return Life::kUnknown;
  return what.l_type == F_UNLCK ? Life::kEnded : Life::kLives;
}

// Of the file that bears a name of ours. One that tells no owner may be a
// process's that is just making it, or that has another version.
Life life_of_namesake(int file, ReadOwner read_owner) {
  struct stat info;
  if (fstat(file, &info)) return Life::kUnknown;
  if (!S_ISREG(info.st_mode)) return Life::kEnded;
  Owner owner;
  if (!read_owner(file, owner)) return Life::kUnknown;
  const uint64_t here = pid_namespace();
  // An earlier image of this very process, before exec().
  if (here && owner.pid_namespace == here && owner.pid == uint32_t(getpid()))
    return Life::kEnded;
  return life_of(file, owner);
}

// Makes room for a file of ours. False: the name is another process's.
bool make_way(const std::string& path, ReadOwner read_owner) {
  const int file = open_file(AT_FDCWD, path.c_str());
  if (file < 0 && errno == ENOENT) return true;
  // A link that is not followed is no process's.
  const Life life = file >= 0
                        ? life_of_namesake(file, read_owner)
                        : (errno == ELOOP ? Life::kEnded : Life::kUnknown);
  if (file >= 0) close(file);
  return life == Life::kEnded && (!unlink(path.c_str()) || errno == ENOENT);
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

Life life_of(int file, const Owner& owner) {
  const uint64_t here = pid_namespace();
  if (!here || owner.pid_namespace != here) return life_by_lock(file);
  const auto pid = pid_t(owner.pid);
  if (const uint64_t start = process_start(pid))
    return start == owner.process_start ? Life::kLives : Life::kEnded;
  // A process that has no descriptor left cannot read when another one started.
  return kill(pid, 0) && errno == ESRCH ? Life::kEnded : Life::kUnknown;
}

OwnFile make_own_file(const std::string& directory, ReadOwner read_owner) {
  OwnFile own;
  const std::string first = directory + "/" + std::to_string(getpid());
  const uint64_t here = pid_namespace();
  const std::string second = first + "-" + std::to_string(here);
  // Nobody else has this number in this namespace.
  if (here) unlink(second.c_str());
  int failed = EEXIST;
  for (const std::string& path : {first, second}) {
    if (!make_way(path, read_owner)) continue;
    own.file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat info;
    if (own.file < 0 || fstat(own.file, &info)) {
      failed = errno;
      if (failed == EEXIST) continue;  // another process was faster
      break;
    }
    // Where the file system has no locks, nobody takes a file for an ended
    // process's without knowing the number.
    struct flock what = whole_file(F_WRLCK);
    fcntl(own.file, F_OFD_SETLK, &what);
    own.path = path;
    own.number = info.st_ino;
    return own;
  }
  errno = failed;
  return {};
}

void remove_own_file(const OwnFile& own) {
  struct stat info;
  if (!own.path.empty() && !lstat(own.path.c_str(), &info) &&
      info.st_ino == own.number)
    unlink(own.path.c_str());
}

void release_after_fork(OwnFile& own) {
  struct stat info;
  // A program that closes every descriptor it finds may have closed this one:
  // the number could be another file's.
  if (own.file >= 0 && !fstat(own.file, &info) && info.st_ino == own.number)
    close(own.file);
  own = {};
}

void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept) {
  DIR* files = opendir(directory.c_str());
  if (!files) return;
  const int folder = dirfd(files);
  std::vector<std::string> killed;
  std::vector<Dead> dead;
  while (const dirent* file = readdir(files)) {
    const std::string name = file->d_name;
    struct stat info;
    if (name.ends_with(kDeadSuffix)) {
      if (!fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW))
        dead.emplace_back(int64_t(info.st_mtime), name);
      continue;
    }
    const int opened = open_file(folder, name.c_str());
    if (opened < 0) continue;
    Owner owner;
    if (read_owner(opened, owner) && life_of(opened, owner) == Life::kEnded)
      killed.push_back(name);
    close(opened);
  }
  for (const std::string& name : killed) {
    lay_aside(folder, name);
    dead.emplace_back(int64_t(time(nullptr)), name + kDeadSuffix);
  }
  remove_old(folder, dead, kept);
  closedir(files);
}

}  // namespace npu
