// What a checker, a tracer or a graph capture is told about.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"

namespace npu {

class Stream;
struct Task;

// A kernel and the words it is run with.
struct KernelCall {
  const npu_kernel* kernel;
  const uint64_t* words;
};

// When a graph was captured: now_ns() when it began and when it ended.
struct Captured {
  uint64_t begun = 0, ended = 0;
};

// Who may be given a freed block: its stream, or captures of the graph's pool.
enum class FreedTo { kStream, kGraph };

// Each function is called on the thread that does what it tells. Without an
// observer a launch does not ask for one: its stream's gate word, which it
// reads anyway, says that there is none.
class Observer {
 public:
  virtual ~Observer() = default;

  // The task is complete and about to become visible to the launcher. False
  // refuses a task that has views: its place in the queue does nothing.
  virtual bool submitted(Stream&, uint64_t /*position*/, const Task&) {
    return true;
  }
  // The task is visible now. May throw when it was refused.
  virtual void published(Stream&, bool /*refused*/) {}

  // The stream is about to be given a replay of these kernels as its next task.
  // May throw: nothing has been queued.
  virtual void replays(Stream&, const KernelCall*, size_t, Captured) {}

  virtual void event_recorded(Stream&, uint64_t /*number*/) {}
  // From the next task on, the stream starts after `number` tasks of `other`.
  virtual void stream_waits(Stream&, Stream& /*other*/, uint64_t /*number*/) {}

  // Flags are words that tasks set and wait for; a wait does not say whose task
  // will set the flag. flag_raised: the stream's task `number` sets the flag.
  // flag_awaited: the stream's next task waits for it and, if `takes`, clears
  // it; without a stream, the host has waited.
  virtual void flag_raised(Stream&, uint64_t /*number*/, uint64_t /*flag*/) {}
  virtual void flag_lowered(uint64_t /*flag*/) {}
  virtual void flag_awaited(Stream*, uint64_t /*flag*/, bool /*takes*/) {}

  // A host thread is about to wait; has waited; asks without waiting.
  virtual void host_waits(Stream&, uint64_t /*number*/, WaitReason) {}
  virtual void host_waited(Stream&, uint64_t /*number*/) {}
  virtual void host_polls(Stream&, uint64_t /*number*/) {}
  // Somebody will be told when that number is reached, and goes on meanwhile.
  virtual void host_awaits(Stream&, uint64_t /*number*/) {}
  // The calling thread waits for a flag, or polls it. True: something has run,
  // so the flag may be set now.
  virtual bool flag_polled() { return false; }
  // The calling thread has waited for `stream` and is about to touch the memory
  // of the kernel's views. May throw: nothing has happened yet.
  virtual void host_uses(Stream&, const npu_kernel&,
                         const uint64_t* /*words*/) {}

  // Device memory, in program order. A block has the address with which it was
  // handed out; stream_recorded tells of streams other than the block's own.
  virtual void allocated(Stream*, const void*, size_t) {}
  virtual void stream_recorded(Stream&, const void*) {}
  virtual void freed(Stream*, const void*, size_t, FreedTo) {}
  // The segment is back at the driver: nothing queued can touch it any more.
  virtual void segment_freed(const void*, size_t) {}
  // Pinned host memory. After host_freed the memory is handed out again only
  // once every recorded use is over.
  virtual void host_allocated(const void*, size_t) {}
  virtual void host_freed(const void*) {}

  // Whether tasks wait until the observer runs them (Executor::step) instead
  // of having a thread. Constant while installed.
  virtual bool runs_tasks() const { return false; }
};

// Sets only the pointer; install_observer() (engine/engine.h) also tells the
// streams.
void set_observer(Observer* observer);
Observer* observer();

}  // namespace npu
