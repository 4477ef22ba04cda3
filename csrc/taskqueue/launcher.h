// The thread that takes a stream's tasks in order, launches and retires them.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/tick_clock.h"
#include "csrc/placement/busy_caller.h"
#include "csrc/placement/spread.h"
#include "csrc/taskqueue/idle_spin.h"
#include "csrc/taskqueue/in_flight.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

class Launcher {
 public:
  explicit Launcher(Stream& stream);
  // Returns once the ring is empty after a Stream::stop() of the launcher with
  // this number.
  void run(uint64_t number);
  // Runs the oldest task; there is one. For whoever takes the place of the
  // launcher thread.
  void step();
  // Whether there is one that would not wait, for another stream or a flag.
  bool ready() const;
  // The stream that the oldest task waits for; null where it waits for none.
  Stream* held_by() const;
  // Whether it waits for a flag; for that of an external event, which only this
  // process records.
  bool held_by_flag() const;
  bool held_by_event() const;

  // Fails the stream from another thread (force_stop.h).
  static void force_stop(Stream& stream);

 private:
  struct Idle;

  // What is counted of a task after its slot is given back.
  struct Sample {
    uint64_t stamp, begun;
    uint32_t launch_ticks;
    const char* name;
  };

  // What is noted of a task that has been started on the device.
  struct Flight {
    uint64_t number;   // of the InFlight; the task is done when it has ended
    uint64_t started;  // ticks
  };

  // Until the ring is empty and the launcher is to end.
  void run_in_turn();
  void run_ahead();  // in launch_ahead.cpp

  void process(Task& task, uint64_t position);
  void process_stamped(Task& task, uint64_t position);
  Sample sample_of(const Task& task, uint64_t begun) const;
  void note_depth(uint64_t position);
  static const char* name_of(const Task& task);
  bool drops_tasks() const;
  void perform(Task& task, uint64_t position);
  void failed(int code, Task& task, uint64_t position,
              const npu_failure& failure);
  void drop(Task& task, uint64_t position);
  void retire(Task& task, uint64_t position);
  int execute(Task& task, uint64_t position, npu_failure& failure);
  int execute_own(Task& task, uint64_t position, npu_failure& failure);
  void trace(Task& task, uint64_t position, uint64_t started);
  bool is_traced();
  // Times are ticks.
  void add_trace(Task& task, uint64_t position, uint64_t started,
                 uint64_t ended);
  static void profile(StreamProfile& profile, const Task& task,
                      uint64_t started);
  void count(uint64_t position, const Sample& sample);
  void hold(Stream& other, uint64_t number);
  bool launch_next();
  bool start_next(Task& task);
  void retire_ended();
  bool note_stated_time(Task& task, uint64_t position);
  void retire_flight(Task& task, uint64_t position);
  void give_up_flights();
  void wait_for_report();
  bool wait_for_work();
  bool sleep_until_work();
  bool ends() const;
  void park();
  // Passes on whether callers need a core beside this stream's kernels.
  void make_room(bool needed);

  friend class Stream;  // the inline mode executes without a thread

  Stream& stream_;
  const bool urgent_;
  const double ns_per_tick_;
  const uint64_t ticks_per_us_;
  TickClock clock_;  // the launcher thread's
  IdleSpin idle_;
  BusyCaller callers_;
  bool made_room_ = false;
  uint64_t number_ = 0;
  Seat* seat_ = nullptr;  // of the launcher thread, while it runs

  // Of a driver that reports: positions from the ring's front up to launched_
  // have been started, and have a flight at position % capacity.
  uint64_t launched_ = 0;
  std::vector<Flight> flights_;
  uint64_t last_end_ = 0;  // ticks when a flight was last retired
  bool blocked_ = false;   // the next task waits for a report
};

inline bool Launcher::drops_tasks() const {
  // Relaxed: this thread is the one that sets kFailed (or force_stop(), for
  // which the next task is early enough), and clear_error() only resets it
  // while nothing is queued.
  return stream_.gate_.load(std::memory_order_relaxed) & Stream::kFailed;
}

// Gives the task's memory and slot back, and tells who waits for its number.
inline void Launcher::retire(Task& task, uint64_t position) {
  if (task.marks.spilled) [[unlikely]]
    stream_.arena_.give(task.words());
  stream_.ring_.pop();
  // Before the advance, so that whoever has waited for it reads this number.
  stream_.block_->retired.store(position + 1, std::memory_order_relaxed);
  if (stream_.retired_.advance_to(position + 1)) [[unlikely]]
    stream_.waiters_.retired(stream_, position + 1);
}

}  // namespace npu
