// Computes when a stated device would start and end its tasks. It has no clock
// and no thread of its own: it is told the time, which never goes back.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace npu {

class DeviceModel {
 public:
  enum class Engine { kCompute, kCopy, kNetwork };

  // A task, or a part of one.
  struct Job {
    uint64_t number;
    Engine engine;
    uint64_t ready;     // it does not start before
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
    std::deque<Job> waiting_;
    Job last_{};                  // the one that has begun last,
    uint64_t* server_ = nullptr;  // and what it has
    uint64_t free_at_ = 0;
    uint64_t expected_end_ = 0;
  };

  DeviceModel(int concurrency, int copy_engines)
      : servers_{std::vector<uint64_t>(size_t(concurrency)),
                 std::vector<uint64_t>(size_t(copy_engines)),
                 std::vector<uint64_t>(kNetworks)} {}

  Queue* add(int priority);
  void remove(Queue* queue);

  void submit(Queue& queue, const Job& job);
  // When the next task starts, if nothing is submitted before; UINT64_MAX where
  // none waits. Of tasks with equal starts the more urgent queue's is next,
  // then that of the queue which has been free for longest.
  uint64_t next_start() const;
  // Gives that task, which there must be, its start and its end; returns its
  // queue.
  Queue& begin_next();
  // Begins every task that starts by `now`, in the order of the starts.
  void advance(uint64_t now) {
    while (next_start() <= now) begin_next();
  }
  // Forgets what the queue was given.
  void reset(Queue& queue, uint64_t now);
  // A lower bound of the end of the oldest task; 0 where there is none.
  uint64_t next_end(const Queue& queue) const;

 private:
  // Collectives that may be under way at once: those of a group follow one
  // another on its stream.
  static constexpr size_t kNetworks = 8;

  using Turn = std::tuple<uint64_t, int, uint64_t>;  // start, priority, free

  uint64_t start_of(const Queue& queue) const;
  std::pair<Turn, Queue*> next() const;
  void begin(Queue& queue, uint64_t start);

  std::vector<std::unique_ptr<Queue>> queues_;
  std::array<std::vector<uint64_t>, 3>
      servers_;             // by Engine: when each is free
  uint64_t work_free_ = 0;  // when the arithmetic units are free
};

}  // namespace npu
