// Another process of this host: whether it lives, and what is in its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu {

// How another process finds an open file and a word of this one. Two processes
// are neighbours where they run on one kernel and see the same processes and
// the same network: ranks in different network namespaces are different hosts,
// as far as anybody can tell.
struct ProcessAddress {
  std::string host;  // "": this process cannot be a neighbour
  int pid = 0;
  int file = -1;
  uint64_t token = 0;           // a random number ...
  uint64_t token_location = 0;  // ... and where it is in the process's memory

  std::string text() const;
  static ProcessAddress parse(const std::string& text);
};

// What ProcessAddress::host is in this process.
std::string host_name_of_kernel();

class Neighbour {
 public:
  // Finds the process; its memory can be read where is_open() says so.
  explicit Neighbour(const ProcessAddress& address);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;

  bool is_open() const { return pidfd_ >= 0; }
  // Opens its file for reading and writing; -1 where that is refused.
  int open_file() const;
  // Copies from its memory. Returns 0, or an errno: ESRCH where it has ended.
  int read(uint64_t location, void* to, size_t size) const;
  bool lives() const;

 private:
  const ProcessAddress address_;
  int pidfd_ = -1;
};

}  // namespace npu
