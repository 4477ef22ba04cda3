#include "csrc/stats/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "csrc/base/env.h"
#include "csrc/stats/owner.h"

namespace npu {
namespace {

std::string of_user(uid_t user) {
  return "belongs to user " + std::to_string(user);
}

// Why an open folder cannot be used; "" where only we can write to it.
std::string problem_of(int folder, const std::string& path) {
  struct stat info;
  if (fstat(folder, &info)) return strerror(errno);
  if (info.st_uid != getuid()) return of_user(info.st_uid);
  if (!in_memory(path)) return "not in memory";
  // Ours, but with a mode that a program or a careless umask gave it.
  if (info.st_mode & (S_IWGRP | S_IWOTH) && fchmod(folder, 0700))
    return strerror(errno);
  return "";
}

std::string problem_of(const std::string& path) {
  if (mkdir(path.c_str(), 0700) && errno != EEXIST) return strerror(errno);
  // A link would lead to a folder of somebody else's choice.
  const int folder =
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return strerror(errno);
  const std::string problem = problem_of(folder, path);
  close(folder);
  return problem;
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

}  // namespace

OwnFolder own_folder(const std::string& name) {
  OwnFolder found;
  const auto takes = [&](const std::string& path, const std::string& problem) {
    if (problem.empty()) {
      found.path = path;
      return true;
    }
    if (!found.passed_over.empty()) found.passed_over += "; ";
    found.passed_over += path + ": " + problem;
    return false;
  };
  const std::string shared =
      "/dev/shm/" + name + "-" + std::to_string(getuid());
  if (takes(shared, problem_of(shared))) return found;
  const std::string runtime = env_string("XDG_RUNTIME_DIR", "");
  if (runtime.empty()) return found;
  const std::string problem = problem_of_runtime(runtime);
  const std::string path = runtime + "/" + name;
  if (problem.empty())
    takes(path, problem_of(path));
  else
    takes(runtime, problem);
  return found;
}

std::string open_to_group(int file) {
  const std::string asked = env_string("NPU_DISPATCH_SEGMENT_GROUP", "");
  if (asked.empty()) return "";
  const gid_t group = group_of(asked);
  if (group == gid_t(-1)) return "no group is called " + asked;
  struct stat info;
  if (fstat(file, &info)) return strerror(errno);
  const mode_t mode = S_ISDIR(info.st_mode) ? 0750 : 0640;
  // The group comes first: the one that the file has now was not asked for.
  if (fchown(file, uid_t(-1), group) || fchmod(file, mode))
    return "group " + asked + ": " + strerror(errno);
  return "";
}

}  // namespace npu
