// Sockets of the job's failure channel (job_link.h), and the words on them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace npu {

// A descriptor. A forked child closes it at once: it would keep the connection
// of a parent that has died.
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& from) noexcept : fd_(from.fd_) { from.fd_ = -1; }
  Socket& operator=(Socket&& from) noexcept;
  ~Socket();

  // Throws std::system_error.
  static Socket listening_at(const std::string& address);
  static Socket connected_to(const std::string& address, int port,
                             std::chrono::milliseconds timeout);
  // A connection that has come; one without a descriptor where none has.
  Socket accepted() const;

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int port() const;  // where others connect to

 private:
  explicit Socket(int fd) : fd_(fd) {}
  template <typename Make>
  static Socket made(Make&& make);
  void watch_peer() const;

  int fd_ = -1;
};

struct Word {
  enum Kind : uint32_t { kHello, kWelcome, kBye, kFailure };
  static constexpr size_t kLongest = 4096;  // of the text

  Kind kind;
  int32_t rank;  // whom it is about
  std::string text{};
};

// One connection's words, in and out. Never blocks; one thread.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  bool unsent() const { return !out_.empty(); }
  // Whether the peer's host has not answered for ten seconds.
  bool silent() const;
  void say(const Word& word);
  // Both return 0, or the error number that ended the connection. ECONNRESET:
  // the peer closed it. EPROTO: what came is no word.
  int send();
  int receive(std::vector<Word>& words);

 private:
  Socket socket_;
  std::string in_, out_;
};

}  // namespace npu
