// Small messages from one process to another: a ring in memory that both map.
#pragma once

#include <string.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace npu {

struct Note {
  static constexpr size_t kBody = 1000;  // bytes at most

  uint64_t key;  // what the receiver asks for
  uint32_t size;
  char body[kBody];
};

// One side pushes, one thread at a time, and the other pops.
class NoteRing {
 public:
  // Returns false while the ring is full.
  bool push(uint64_t key, const void* body, uint32_t size) {
    // Relaxed: only this side writes it. Acquire: the other side has read the
    // note whose place is taken now.
    const uint32_t at = written_.load(std::memory_order_relaxed);
    if (at - read_.load(std::memory_order_acquire) == kNotes) {
      // Sequentially consistent, as in pop() and room_is_wanted(): either this
      // side sees the room that the other one gives, or that one sees the wish.
      wanted_.store(1, std::memory_order_seq_cst);
      if (at - read_.load(std::memory_order_seq_cst) == kNotes) return false;
    }
    Note& note = notes_[at % kNotes];
    note.key = key;
    note.size = size;
    if (size) memcpy(note.body, body, size);
    // Release: who sees the number sees the note.
    written_.store(at + 1, std::memory_order_release);
    return true;
  }

  // Calls use(key, body, size) for the oldest note and gives its place back;
  // returns false where there is none. Throws where what is there is no note:
  // the other side may write anything.
  template <typename Use>
  bool pop(Use use) {
    // As in push(), with the sides exchanged.
    const uint32_t at = read_.load(std::memory_order_relaxed);
    if (at == written_.load(std::memory_order_acquire)) return false;
    const Note& note = notes_[at % kNotes];
    // Read once, as it may change.
    const uint32_t size = *static_cast<const volatile uint32_t*>(&note.size);
    if (size > Note::kBody)
      throw std::runtime_error("a rank of this host has sent what is no note");
    use(note.key, note.body, size_t(size));
    read_.store(at + 1, std::memory_order_seq_cst);
    return true;
  }

  // Asked after pop(): whether push() failed meanwhile. It says so once.
  bool room_is_wanted() {
    return wanted_.load(std::memory_order_seq_cst) &&
           wanted_.exchange(0, std::memory_order_seq_cst);
  }

 private:
  static constexpr uint32_t kNotes = 16;  // a power of two: numbers wrap around

  alignas(64) std::atomic<uint32_t> written_{0};
  alignas(64) std::atomic<uint32_t> read_{0};
  std::atomic<uint32_t> wanted_{0};
  Note notes_[kNotes];
};

}  // namespace npu
