// Computes when a stated device would start and end its tasks. It has no clock
// and no thread of its own: it is told the time, which never goes back.
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
    uint64_t ready;     // the task does not start before
    uint64_t overhead;  // ns beside the work; those of several queues overlap
    uint64_t work;      // ns in which it has the device for itself
  };
  struct Span {
    uint64_t number, start, end;
  };

  class Queue {
   public:
    explicit Queue(int priority) : priority_(priority) {}

    // The tasks that have begun, the oldest first. Whoever reports an end
    // removes the task here.
    std::deque<Span> begun;
    // When everything that the queue was given will have ended, if no other
    // queue's task comes between.
    uint64_t expected_end() const { return expected_end_; }

   private:
    friend class DeviceModel;
    const int priority_;
    std::deque<Task> waiting_;
    Task last_{};                 // the one that has begun last,
    uint64_t* server_ = nullptr;  // and what it has
    uint64_t free_at_ = 0;
    uint64_t expected_end_ = 0;
  };

  DeviceModel(int concurrency, int copy_engines)
      : slots_(size_t(concurrency)), copies_(size_t(copy_engines)) {}

  Queue* add(int priority);
  void remove(Queue* queue);

  void submit(Queue& queue, const Task& task);
  // Gives a start and an end to every task that starts by `now`, in the order
  // of the starts. Of tasks with equal starts the more urgent queue's comes
  // first, then that of the queue which has been free for longest.
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
  uint64_t work_free_ = 0;                // when the arithmetic units are free
};

}  // namespace npu
