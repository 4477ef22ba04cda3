#include "csrc/stats/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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
#include <utility>
#include <vector>

#include "csrc/base/env.h"

namespace npu {

OpenFile::~OpenFile() {
  const int error = errno;
  if (file_ >= 0) close(file_);
  errno = error;
}

bool in_memory(const std::string& directory) {
  struct statfs found;
  if (statfs(directory.c_str(), &found)) return false;
  const auto kind = uint32_t(found.f_type);
  return kind == TMPFS_MAGIC || kind == RAMFS_MAGIC;
}

namespace {

std::string of_user(uid_t user) {
  return "belongs to user " + std::to_string(user);
}

// Why a folder cannot be used, which is made where it is missing; "" where it
// lies in memory and only we can write to it.
std::string problem_of(const std::string& path) {
  if (mkdir(path.c_str(), 0700) && errno != EEXIST) return strerror(errno);
  // A link would lead to a folder of somebody else's choice.
  const OpenFile folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (folder < 0 || fstat(folder, &info)) return strerror(errno);
  if (info.st_uid != getuid()) return of_user(info.st_uid);
  if (!in_memory(path)) return "not in memory";
  // Ours, but with a mode that a program or a careless umask gave it.
  if (info.st_mode & (S_IWGRP | S_IWOTH) && fchmod(folder, 0700))
    return strerror(errno);
  return "";
}

// Why $XDG_RUNTIME_DIR cannot be used: under sudo it is still another user's.
std::string problem_of_runtime(const std::string& path) {
  struct stat info;
  if (path.front() != '/') return "not an absolute path";
  if (lstat(path.c_str(), &info)) return strerror(errno);
  if (!S_ISDIR(info.st_mode)) return strerror(ENOTDIR);
  if (info.st_uid != getuid()) return of_user(info.st_uid);
  if (info.st_mode & (S_IRWXG | S_IRWXO)) return "open to other users";
  return "";
}

// The number of a group that is given by name or number; -1 where there is
// none.
gid_t group_of(const std::string& asked) {
  char* end = nullptr;
  const unsigned long number = strtoul(asked.c_str(), &end, 10);
  if (asked.front() >= '0' && asked.front() <= '9' && !*end)
    return gid_t(number);
  std::vector<char> room(1 << 14);
  struct group entry;
  struct group* found = nullptr;
  getgrnam_r(asked.c_str(), &entry, room.data(), room.size(), &found);
  return found ? found->gr_gid : gid_t(-1);
}

// The name may be that of a FIFO or a link: neither is followed or waited for.
OpenFile open_file(int directory, const char* name) {
  return OpenFile(
      openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

struct flock whole_file(short kind) {
  struct flock what {};
  what.l_type = kind;
  what.l_whence = SEEK_SET;
  return what;
}

}  // namespace

OwnFolder own_folder(const std::string& name) {
  const std::string shared =
      "/dev/shm/" + name + "-" + std::to_string(getuid());
  std::string problem = problem_of(shared);
  if (problem.empty()) return {shared, ""};
  OwnFolder found{"", shared + ": " + problem};
  const std::string runtime = env_string("XDG_RUNTIME_DIR", "");
  if (runtime.empty()) return found;
  const std::string session = runtime + "/" + name;
  problem = problem_of_runtime(runtime);
  if (problem.empty()) problem = problem_of(session);
  if (problem.empty())
    found.path = session;
  else
    found.passed_over += "; " + session + ": " + problem;
  return found;
}

std::string open_to_group(const std::string& path) {
  const std::string asked = env_string("NPU_DISPATCH_SEGMENT_GROUP", "");
  if (asked.empty()) return "";
  const gid_t group = group_of(asked);
  if (group == gid_t(-1)) return "no group is called " + asked;
  const OpenFile file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  // The group comes first: the one that the file has now was not asked for.
  if (file < 0 || fstat(file, &info) || fchown(file, uid_t(-1), group) ||
      fchmod(file, S_ISDIR(info.st_mode) ? 0750 : 0640))
    return "group " + asked + ": " + strerror(errno);
  return "";
}

bool has_ended(int file, const Owner& owner) {
  const uint64_t here = pid_namespace();
  if (!here || owner.pid_namespace != here) {
    // Asks for the lock without taking it, which could stop its owner from
    // doing so.
    struct flock what = whole_file(F_RDLCK);
    return !fcntl(file, F_OFD_GETLK, &what) && what.l_type == F_UNLCK;
  }
  const auto pid = pid_t(owner.pid);
  if (const uint64_t start = process_start(pid))
    return start != owner.process_start;
  // A process that has no descriptor left cannot read when another one started.
  return kill(pid, 0) && errno == ESRCH;
}

bool make_way(const std::string& path, ReadOwner read_owner) {
  const OpenFile file = open_file(AT_FDCWD, path.c_str());
  if (file < 0 && errno == ENOENT) return true;
  struct stat info;
  Owner owner;
  const uint64_t here = pid_namespace();
  // A link, which is not followed, is no process's.
  bool free = file < 0 && errno == ELOOP;
  if (file >= 0 && !fstat(file, &info))
    // One that tells no owner may be a process's that is just making it, or
    // that has another version.
    free = !S_ISREG(info.st_mode) ||
           (read_owner(file, owner) &&
            // An earlier image of this very process, before exec().
            ((here && owner.pid_namespace == here &&
              owner.pid == uint32_t(getpid())) ||
             has_ended(file, owner)));
  if (free && (!unlink(path.c_str()) || errno == ENOENT)) return true;
  errno = EEXIST;
  return false;
}

void lock_as_owner(int file) {
  // Where the file system has no locks, nobody takes a file for an ended
  // process's without knowing the number.
  struct flock what = whole_file(F_WRLCK);
  fcntl(file, F_OFD_SETLK, &what);
}

void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept) {
  DIR* files = opendir(directory.c_str());
  if (!files) return;
  const int folder = dirfd(files);
  std::vector<std::string> names;
  while (const dirent* file = readdir(files)) names.push_back(file->d_name);
  std::vector<std::pair<int64_t, std::string>> dead;  // when found, seconds
  for (std::string& name : names) {
    if (!name.ends_with(kDeadSuffix)) {
      const OpenFile file = open_file(folder, name.c_str());
      Owner owner;
      if (file < 0 || !read_owner(file, owner) || !has_ended(file, owner))
        continue;
      // Its time from now on is that of this discovery.
      utimensat(folder, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
      renameat(folder, name.c_str(), folder, (name + kDeadSuffix).c_str());
      name += kDeadSuffix;
    }
    struct stat info;
    if (!fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW))
      dead.emplace_back(int64_t(info.st_mtime), name);
  }
  std::sort(dead.begin(), dead.end(), std::greater<>());
  const int64_t oldest = int64_t(time(nullptr)) - kDeadKeptS;
  for (size_t i = 0; i < dead.size(); ++i)
    if (i >= kept || dead[i].first < oldest)
      unlinkat(folder, dead[i].second.c_str(), 0);
  closedir(files);
}

}  // namespace npu
