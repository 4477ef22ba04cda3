// Runs the tasks of all streams one at a time, on the thread that submits or
// waits, in an order that a seed decides: the same program with the same seed
// sees the same interleaving.
//
// The order is that of probabilistic concurrency testing: every stream, and the
// host itself, has a random priority. The one that is ready and has the highest
// priority goes on; at a few random steps its priority becomes the lowest. A
// stream below the host runs nothing until the host waits.
//
// A collective waits for other ranks, which may wait for what this one does
// next. It begins when its stream is chosen and runs beside the others; when it
// ends is up to its peers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "csrc/observe/observer.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/executor.h"

namespace npu {

struct ScheduleOptions {
  uint64_t seed;    // 0: each task runs at once, in program order
  int changes;      // how many steps lower a priority
  uint64_t length;  // about how many steps the program has
  bool poison;      // whether freed device memory is overwritten
};

// While it is installed, streams have no launcher threads. It is for programs
// that submit and wait on one thread; with several, the interleaving depends on
// them.
class Schedule final : public Observer {
 public:
  explicit Schedule(const ScheduleOptions& options);

  // Runs all tasks that are left.
  void drain();
  uint64_t steps() const { return steps_; }
  // Differs, in all likelihood, when the interleaving does.
  uint64_t trace() const { return trace_; }

  unsigned wants() const override { return kTasks | kRuns; }
  void published(Stream&, bool refused) override;
  void stream_waits(Stream&, Stream& other, uint64_t number) override;
  void host_waits(Stream&, uint64_t number, WaitReason) override;
  void host_polls(Stream&, uint64_t number) override;
  void host_awaits(Stream&, uint64_t number) override;
  bool flag_polled() override;
  void stream_recorded(Stream&, const void*) override;
  void freed(Stream&, const void*, size_t, FreedTo) override;

 private:
  struct Actor {
    Stream* stream;
    std::unique_ptr<Executor> executor;
    int64_t priority;
    uint64_t index;
    bool busy = false;  // one of its tasks is running
    // Runs a task that waits for other processes; else not joinable.
    std::thread away{};
    bool back = false;  // it has run it; guarded by ended_mutex_

    // The oldest task; null where there is none, or where the stream has no
    // queue.
    const Task* next() const;
    // Whether there is a task that would wait neither for another stream nor
    // for a flag.
    bool ready() const;
    // The stream that the oldest task waits for; null where it waits for none.
    Stream* held_by() const;
    // Whether the oldest task waits for a flag; whether that flag is an
    // external event's, which only this process records.
    bool held_by_flag() const;
    bool held_by_event() const;
  };

  uint64_t random();
  Actor& actor_of(Stream& stream);
  // The ready stream with the highest priority above `floor`, or null.
  Actor* best(int64_t floor);
  void run(Actor& actor);
  // Runs a task that waits for other processes on a thread of its own. Waits a
  // while for its end.
  void send_away(Actor& actor);
  // Takes back the actors whose such tasks have ended.
  void take_back();
  // Waits for the end of such a task. False: there is none.
  bool await_one_away();
  enum class Then { kSleep, kGoOn };
  // Runs streams until `stream` has retired `number` tasks or none is ready.
  // `then`: what the calling thread does after that.
  void run_until(Stream& stream, uint64_t number, Then then);
  // Notes the calling thread.
  void enter();
  // The stream whose wait for a flag holds up `stream`, or null.
  Actor* held_by_flag(Stream& stream);
  // Runs tasks as long as threads or event loops wait for any.
  void serve();
  // Counts a step of the actor that has this priority; may lower the priority.
  void step(int64_t& priority);

  const bool poison_;
  const bool program_order_;

  std::recursive_mutex mutex_;  // guards the rest
  uint64_t random_;

  std::map<Stream*, size_t> indices_;
  std::deque<Actor> actors_;  // a deque: their addresses do not change
  int64_t host_priority_ = 0;
  int64_t lowest_ = 0;
  std::set<uint64_t> changes_;
  std::set<const void*> used_elsewhere_;
  uint64_t steps_ = 0, trace_ = 0;
  bool running_ = false;
  std::mutex ended_mutex_;  // taken last
  std::condition_variable ended_;
  std::vector<StreamPoint> awaited_;
  std::thread::id thread_;  // the first thread that has used this
  bool several_ = false;
};

}  // namespace npu
