#include "csrc/distributed/job_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <system_error>

namespace npu {
namespace {

// The kernels ask each other, so a process that is stopped, debugged or at work
// answers. The kernel's own judgement is not asked: it takes a question that
// did not get out of this host for none, and asks for ever.
constexpr int kAskS = 2, kSilentMs = 10'000;

constexpr uint32_t kWordMagic = 0x6b6e696c;
struct Header {
  uint32_t magic, kind;
  int32_t rank;
  uint32_t size;
};

struct OpenSockets {
  // Guards `fds`, and is held while a descriptor is made: a child that is
  // forked at any time knows all that it has.
  std::mutex mutex;
  std::set<int> fds;
};

OpenSockets& open_sockets() {
  static OpenSockets* const instance = [] {
    pthread_atfork([] { open_sockets().mutex.lock(); },
                   [] { open_sockets().mutex.unlock(); },
                   [] {
                     OpenSockets& open = open_sockets();
                     new (&open.mutex) std::mutex;
                     for (const int fd : open.fds) close(fd);
                     open.fds.clear();
                   });
    return new OpenSockets;
  }();
  return *instance;
}

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Resolved {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, freeaddrinfo};
  const addrinfo* operator->() const { return list.get(); }
};

Resolved resolve(const std::string& address, int port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(),
                                &wanted, &found);
  if (error) fail(EINVAL, address + ": " + gai_strerror(error));
  Resolved resolved;
  resolved.list.reset(found);
  return resolved;
}

}  // namespace

template <typename Make>
Socket Socket::made(Make&& make) {
  OpenSockets& open = open_sockets();
  std::lock_guard lock(open.mutex);
  const int fd = make();
  if (fd >= 0) open.fds.insert(fd);
  return Socket(fd);
}

Socket::~Socket() {
  if (fd_ < 0) return;
  OpenSockets& open = open_sockets();
  std::lock_guard lock(open.mutex);
  // A forked child has closed it, and may have given the number to a file.
  if (open.fds.erase(fd_)) close(fd_);
}

Socket& Socket::operator=(Socket&& from) noexcept {
  std::swap(fd_, from.fd_);
  return *this;
}

Socket Socket::listening_at(const std::string& address) {
  const Resolved at = resolve(address, 0);
  Socket socket = made([&] {
    return ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    0);
  });
  if (!socket || bind(socket.fd_, at->ai_addr, at->ai_addrlen) ||
      listen(socket.fd_, SOMAXCONN))
    fail(errno, "cannot listen at " + address);
  return socket;
}

Socket Socket::connected_to(const std::string& address, int port,
                            std::chrono::milliseconds timeout) {
  const Resolved to = resolve(address, port);
  const std::string what =
      "cannot connect to " + address + " port " + std::to_string(port);
  Socket socket = made([&] {
    return ::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    0);
  });
  if (!socket) fail(errno, what);
  if (connect(socket.fd_, to->ai_addr, to->ai_addrlen)) {
    if (errno != EINPROGRESS) fail(errno, what);
    pollfd ready{socket.fd_, POLLOUT, 0};
    if (poll(&ready, 1, int(timeout.count())) <= 0) fail(ETIMEDOUT, what);
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) fail(error, what);
  }
  socket.watch_peer();
  return socket;
}

Socket Socket::accepted() const {
  Socket socket = made([&] {
    return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  });
  if (socket) socket.watch_peer();
  return socket;
}

int Socket::port() const {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
  // IPv4 and IPv6 have it at the same place.
  return ntohs(reinterpret_cast<sockaddr_in&>(at).sin_port);
}

void Socket::watch_peer() const {
  const auto set = [&](int level, int option, int value) {
    setsockopt(fd_, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kAskS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kAskS);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

bool Connection::silent() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  return !getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &size) &&
         info.tcpi_last_ack_recv > kSilentMs;
}

void Connection::say(const Word& word) {
  const std::string text = word.text.substr(0, Word::kLongest);
  const Header header{kWordMagic, word.kind, word.rank, uint32_t(text.size())};
  out_.append(reinterpret_cast<const char*>(&header), sizeof header);
  out_ += text;
}

int Connection::send() {
  while (!out_.empty()) {
    const ssize_t n = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN ? 0 : errno;
    out_.erase(0, size_t(n));
  }
  return 0;
}

int Connection::receive(std::vector<Word>& words) {
  char room[4096];
  int error = 0;
  while (!error) {
    const ssize_t n = recv(fd(), room, sizeof room, 0);
    if (n > 0) in_.append(room, size_t(n));
    if (n == 0) error = ECONNRESET;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0 && errno != EINTR) error = errno;
    Header header;
    while (in_.size() >= sizeof header) {
      memcpy(&header, in_.data(), sizeof header);
      if (header.magic != kWordMagic || header.kind > Word::kFailure ||
          header.size > Word::kLongest)
        return EPROTO;
      const size_t whole = sizeof header + header.size;
      if (in_.size() < whole) break;
      words.push_back({Word::Kind(header.kind), header.rank,
                       in_.substr(sizeof header, header.size)});
      in_.erase(0, whole);
    }
  }
  return error;
}

}  // namespace npu
