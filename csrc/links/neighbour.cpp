#include "csrc/links/neighbour.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "csrc/base/process_id.h"

namespace npu {
namespace {

// The number of this process's network namespace, or 0.
uint64_t network_namespace() {
  struct stat found;
  return stat("/proc/self/ns/net", &found) ? 0 : found.st_ino;
}

// Where Yama lets only ancestors look into a process, ranks, which are
// siblings, need its leave.
void let_neighbours_read() {
  char scope = '0';
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (scope == '1') prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace

std::string ProcessAddress::text() const {
  std::ostringstream out;
  out << (host.empty() ? "-" : host) << ' ' << pid << ' ' << file << ' '
      << token << ' ' << token_location;
  return out.str();
}

ProcessAddress ProcessAddress::parse(const std::string& text) {
  ProcessAddress a;
  std::istringstream in(text);
  in >> a.host >> a.pid >> a.file >> a.token >> a.token_location;
  if (!in || a.host == "-") return {};
  return a;
}

std::string host_name_of_kernel() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const uint64_t network = network_namespace(), processes = pid_namespace();
  if (boot.empty() || !network || !processes) return {};
  let_neighbours_read();
  return boot + "/" + std::to_string(network) + "/" + std::to_string(processes);
}

Neighbour::Neighbour(const ProcessAddress& address) : address_(address) {
  if (address.host.empty()) return;
  pidfd_ = int(syscall(SYS_pidfd_open, address.pid, 0));
  // The number may be another process's by now. The one that has the token is
  // the one that is meant, and the descriptor was opened before.
  uint64_t token = 0;
  if (pidfd_ >= 0 && (read(address.token_location, &token, sizeof token) ||
                      token != address.token)) {
    close(pidfd_);
    pidfd_ = -1;
  }
}

Neighbour::~Neighbour() {
  if (pidfd_ >= 0) close(pidfd_);
}

int Neighbour::open_file() const {
  const std::string path = "/proc/" + std::to_string(address_.pid) + "/fd/" +
                           std::to_string(address_.file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

int Neighbour::read(uint64_t location, void* to, size_t size) const {
  constexpr size_t kMost = size_t(1) << 30;  // the call's own limit is 2 GiB
  for (size_t done = 0; done < size;) {
    const size_t next = std::min(kMost, size - done);
    const iovec here{static_cast<char*>(to) + done, next};
    const iovec there{reinterpret_cast<void*>(location + done), next};
    const ssize_t n = process_vm_readv(address_.pid, &here, 1, &there, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    done += size_t(n);
  }
  return 0;
}

bool Neighbour::lives() const {
  pollfd one{pidfd_, POLLIN, 0};
  return poll(&one, 1, 0) == 0;
}

}  // namespace npu
