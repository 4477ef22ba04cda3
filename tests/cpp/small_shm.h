// A /dev/shm of the test's own, of any size.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

namespace npu::check {

inline void write_text(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t n = write(file, text.data(), text.size());
  close(file);
}

// Gives the calling process, which has one thread, a /dev/shm of `bytes`.
// False, with a line on stderr, where the system does not allow it.
inline bool small_shm(size_t bytes) {
  const std::string user = std::to_string(getuid());
  bool done = !unshare(CLONE_NEWNS);
  if (!done && !unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
    write_text("/proc/self/uid_map", user + " " + user + " 1");
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

}  // namespace npu::check
