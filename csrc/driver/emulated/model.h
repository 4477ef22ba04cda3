// The times at which a stated device would start and end its tasks. No clock
// and no thread of its own: it is told the time, never a smaller one than
// before.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace npu {

class DeviceModel {
 public:
  enum class Engine { kCompute, kCopy };

  struct Task {
    uint64_t number;
    Engine engine;
    uint64_t ready;     // not before
    uint64_t overhead;  // ns beside the work; those of several queues overlap
    uint64_t work;      // ns in which it has the device for itself
  };
  struct Span {
    uint64_t number, start, end;
  };

  class Queue {
   public:
    explicit Queue(int priority) : priority_(priority) {}

    // Begun, the oldest first; whoever has reported an end takes it away.
    std::deque<Span> begun;
    // When all that it was given will have ended, if nothing of another queue
    // comes between.
    uint64_t expected_end() const { return expected_end_; }

   private:
    friend class DeviceModel;
    const int priority_;
    std::deque<Task> waiting_;
    uint64_t free_at_ = 0;
    uint64_t expected_end_ = 0;
  };

  DeviceModel(int concurrency, int copy_engines)
      : slots_(size_t(concurrency)), copies_(size_t(copy_engines)) {}

  Queue* add(int priority);
  void remove(Queue* queue);

  void submit(Queue& queue, const Task& task);
  // Gives a start and an end to everything that starts by `now`: in the order
  // of the starts; at the same time, the more urgent queue's first, then that
  // of the queue which has waited longest since its last.
  void advance(uint64_t now);
  // Forgets what the queue was given.
  void reset(Queue& queue, uint64_t now);
  // A lower bound of the end of the oldest task; 0 where there is none.
  uint64_t next_end(const Queue& queue) const;

 private:
  uint64_t start_of(const Queue& queue) const;
  void begin(Queue& queue, uint64_t start);

  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<uint64_t> slots_, copies_;  // when each is free
  uint64_t work_free_ = 0;                // when the arithmetic units are
};

}  // namespace npu
