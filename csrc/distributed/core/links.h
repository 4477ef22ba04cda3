// Links between the ranks of a group that run on one host.
//
// Small messages, notes, go through rings in shared memory. Large ones are read
// by their receiver out of the sender's memory, once a note has said where they
// are: one copy, and no memory in between that could fill up. Nothing has a
// name in a file system, so nothing is left behind by whoever is killed.
//
// Notes that nobody has asked for yet are taken out of the rings and kept, by
// whichever thread waits. So a note never stands in the way of another one, and
// calls of several streams do not wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/distributed/core/note_ring.h"
#include "csrc/stats/owner.h"

namespace npu {

// Why a rank is lost that has destroyed the group, or whose program has ended.
inline constexpr char kLeftGroup[] = "it has left the group";

class Links {
 public:
  Links(int rank, int size);
  // Tells the others that this rank has left.
  ~Links();
  Links(const Links&) = delete;

  // What meet() of the others is given; "-" where there can be no links.
  std::string address() const;
  // Returns whether the peer is on this host, and lets it read this process's
  // memory until close(), if so.
  bool meet(int peer, const std::string& address);
  // Links with a peer that each has met, or else closes. Both sides must have a
  // link: close() it where the other has not.
  bool open(int peer);
  void close(int peer);
  bool linked(int peer) const;
  int linked_peers() const;

  // Sends a note of at most Note::kBody bytes, as soon as there is room: in
  // this call or in later ones of progress(). Returns its number.
  uint64_t post(int peer, uint64_t key, const void* body, size_t size);
  // Whether the note has left, so that the peer finds it even if this process
  // ends.
  bool has_left(int peer, uint64_t number);
  // Takes the oldest note with this key that has come from the peer, and
  // returns whether there was one. The body has at most `room` bytes.
  bool take(int peer, uint64_t key, void* body, size_t room);
  // Takes in what has come, and sends what had no room.
  void progress();
  // Copies out of the peer's memory. Throws where the peer has ended, or has
  // withdrawn what it had offered.
  void read(int peer, uint64_t location, void* to, size_t size) const;
  // Says, before memory is freed, that what this rank has offered is no longer
  // there: a failed call does this.
  void withdraw();
  // Why no more notes than have come by now will come from the peer, or null.
  const char* lost(int peer);

  // Ends the sleep of all threads of this process that wait.
  void wake();

  // A wait for anything to happen: looked at by turns of pause() and the
  // caller's own look. It spins for a moment, and sleeps then.
  class Wait {
   public:
    explicit Wait(Links& on);
    ~Wait();
    Wait(const Wait&) = delete;
    // Returns when something may have changed, after `most_ns` at the latest.
    void pause(uint64_t most_ns);

   private:
    Links& on_;
    uint32_t seen_;
    uint64_t spins_until_;
    bool sleeps_ = false;
  };

 private:
  struct Office;
  struct Address;
  struct Peer;

  void ring(Office& office) const;
  NoteRing& ring_of(Office& office, int from) const;

  const int rank_, size_;
  const int pid_;
  const size_t bytes_;  // of an office and its rings
  const OpenFile file_;
  Office* mine_ = nullptr;
  std::string host_;
  std::mutex mutex_;  // guards notes and the rings' ends in this process
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace npu
