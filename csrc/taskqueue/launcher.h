// The thread that takes a stream's tasks in order, launches and retires them.
#pragma once

#include <cstdint>

#include "csrc/base/tick_clock.h"
#include "csrc/placement/busy_caller.h"
#include "csrc/placement/spread.h"
#include "csrc/taskqueue/idle_spin.h"
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

  void process(Task& task, uint64_t position);
  void process_stamped(Task& task, uint64_t position);
  bool drops_tasks() const;
  void perform(Task& task, uint64_t position);
  void drop(Task& task, uint64_t position);
  void retire(Task& task, uint64_t position);
  int execute(Task& task, uint64_t position, npu_failure& failure);
  int execute_own(Task& task, uint64_t position, npu_failure& failure);
  void trace(Task& task, uint64_t position, uint64_t started);
  static void profile(StreamProfile& profile, const Task& task,
                      uint64_t started);
  void count(uint64_t position, const Sample& sample);
  void hold(Stream& other, uint64_t number);
  bool wait_for_work();
  bool sleep_until_work();
  bool ends() const;
  void park();
  // Passes on whether callers need a core beside this stream's kernels.
  void make_room(bool needed);

  friend class Stream;  // the inline mode executes without a thread

  Stream& stream_;
  const npu_driver& driver_;
  const bool urgent_;
  const double ns_per_tick_;
  const uint64_t ticks_per_us_;
  TickClock clock_;  // the launcher thread's
  IdleSpin idle_;
  BusyCaller callers_;
  bool made_room_ = false;
  uint64_t number_ = 0;
  Seat* seat_ = nullptr;  // of the launcher thread, while it runs
};

}  // namespace npu
