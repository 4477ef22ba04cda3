// What tests are given of the system: a folder, a /dev/shm, CPUs, no threads.
#pragma once

#include <sys/mount.h>

#include "tests/cpp/check.h"

namespace npu::check {

// A folder of files, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/npu_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;

  // Writes a file; the folders in its path are made.
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path to = std::filesystem::path(path) / file;
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to) << text << "\n";
  }

  std::string path;
};

// Gives the calling process, which has one thread, a /dev/shm of `bytes`.
// False, with a line on stderr, where the system does not allow it.
inline bool small_shm(size_t bytes) {
  const std::string user = std::to_string(getuid());
  bool done = !unshare(CLONE_NEWNS);
  if (!done && !unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
    std::ofstream("/proc/self/uid_map") << user + " " + user + " 1";
    done = true;
  }
  const std::string size = "size=" + std::to_string(bytes);
  done = done && !mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) &&
         !mount("", "/dev/shm", "tmpfs", 0, size.c_str());
  if (!done) fprintf(stderr, "no /dev/shm of its own: not tested\n");
  return done;
}

// Uses up all of it.
inline void fill_shm() {
  static const char page[4096] = {1};
  const int file = open("/dev/shm/filler", O_WRONLY | O_CREAT, 0600);
  while (write(file, page, sizeof page) == ssize_t(sizeof page)) {
  }
  close(file);
}

inline cpu_set_t cpus(std::initializer_list<int> of) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : of) CPU_SET(size_t(cpu), &set);
  return set;
}

// Those that the calling thread may run on.
inline cpu_set_t allowed_cpus() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

// While one exists, new threads ask for a stack that is larger than the address
// space. (A limit of threads would not hold for root.)
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace npu::check
