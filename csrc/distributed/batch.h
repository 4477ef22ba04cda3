// Sends and receives of one call, posted together and waited for together.
//
// Each message goes through the link to its peer where there is one, and else
// through Gloo. Messages of one peer and tag are received in the order in which
// they were sent.
#pragma once

#include <deque>
#include <map>

#include "csrc/distributed/transport.h"

namespace npu {

// What is left at the destruction is aborted before its memory is freed.
class Transport::Batch {
 public:
  // `links`: whether it may use them; all ranks must decide alike.
  Batch(Transport& on, Milliseconds timeout, bool links = true);
  ~Batch();
  Batch(const Batch&) = delete;

  // `told`: a linked peer knows already where the data is.
  void send(int peer, int tag, const void* data, size_t size,
            bool told = false);
  // `location`: where the data is in a linked peer's memory, if it has told;
  // it must be there already. Peer -1: from any; all peers must be linked, or
  // none be.
  void receive(int peer, int tag, void* data, size_t size,
               uint64_t location = 0);

  // Waits for the first `count` of those that are left.
  void wait(size_t count = SIZE_MAX);
  // Receives what has come through links.
  void look() { look_at(posted_.size()); }
  // The peer whose message was waited for when wait() threw; -1: none.
  int peer() const { return peer_; }
  // Waits for the one message that is left; returns its sender.
  int wait_for_source();
  bool over() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  struct Pending {
    int peer;
    WorkPtr work;  // Gloo's; null: through a link, as the rest says
    bool sends = false;
    int tag = 0;
    char* data = nullptr;
    size_t size = 0;
    uint64_t location = 0;
    bool is_note = false;  // has gone with a note; else the data is read out
    bool done = false;
  };

  bool through_link(int peer) const;
  template <typename F>
  void post(int peer, F&& start);
  void look_at(size_t count);
  bool is_done(Pending& p);
  const char* why_lost(int peer);
  void note(int peer, uint64_t key, const void* body, size_t size);
  template <typename Done>
  void wait_for_link(int peer, size_t count, Done done);
  void wait_for_gloo(const Pending& p);
  void refuse();
  void refuse_locked();

  Transport& on_;
  Links* const links_;
  const std::chrono::steady_clock::time_point end_;
  std::deque<Pending> posted_;
  std::map<int, uint64_t> notes_;  // the number of the last one, by peer
  int peer_ = -1;
  int source_ = -1;  // of the last that was waited for
};

}  // namespace npu
