// A file descriptor that is readable once it has been signalled.
#pragma once

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>

namespace npu {

class EventFd {
 public:
  // Throws std::system_error where no descriptor is left.
  EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0)
      throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~EventFd() { close(fd_); }
  EventFd(const EventFd&) = delete;

  int fd() const { return fd_; }
  void signal() {
    const uint64_t one = 1;
    // The write cannot fail: the counter is reset long before 2^64.
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }
  void clear() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
  }

 private:
  const int fd_;
};

}  // namespace npu
