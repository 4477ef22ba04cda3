// What a checker, a tracer or a graph capture is told about.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;
struct Task;

// A kernel and the words it is run with.
struct KernelCall {
  const npu_kernel* kernel;
  const uint64_t* words;
};

// What may be given a freed block: its stream, or captures of the graph's pool.
enum class FreedTo { kStream, kGraph };

// Called on the thread that does the thing. With no observer installed none of
// this is reached: streams keep the answer in a word they read anyway.
class Observer {
 public:
  virtual ~Observer() = default;

  // The task is complete and about to become visible to the launcher. False
  // refuses a task that has views: its place in the queue does nothing.
  virtual bool submitted(Stream&, uint64_t /*position*/, const Task&) {
    return true;
  }
  // It is visible now. May throw when it was refused.
  virtual void published(Stream&, bool /*refused*/) {}

  // The stream is about to be given a replay of these as its next task. May
  // throw: nothing has been queued.
  virtual void replays(Stream&, const KernelCall*, size_t) {}

  virtual void event_recorded(Stream&, uint64_t /*number*/) {}
  // From the next task on, the stream starts after `number` tasks of `other`.
  virtual void stream_waits(Stream&, Stream& /*other*/, uint64_t /*number*/) {}

  // Flags are words that tasks set, and wait for, without saying whose task
  // will: the stream's task `number` sets one; its next task waits for one and,
  // if `takes`, clears it. Without a stream it is the host that has waited.
  virtual void flag_raised(Stream&, uint64_t /*number*/, uint64_t /*flag*/) {}
  virtual void flag_lowered(uint64_t /*flag*/) {}
  virtual void flag_awaited(Stream*, uint64_t /*flag*/, bool /*takes*/) {}

  // A host thread is about to wait; has waited; asks without waiting.
  virtual void host_waits(Stream&, uint64_t /*number*/) {}
  virtual void host_waited(Stream&, uint64_t /*number*/) {}
  virtual void host_polls(Stream&, uint64_t /*number*/) {}
  // Somebody will be told when it is done, and goes on meanwhile.
  virtual void host_awaits(Stream&, uint64_t /*number*/) {}
  // The calling thread waits for a flag, or asks for it without waiting. True:
  // something has run, so it may be up now.
  virtual bool flag_polled() { return false; }
  // The calling thread, having waited for `stream`, is about to touch what the
  // kernel's views say. May throw: nothing has happened yet.
  virtual void host_uses(Stream&, const npu_kernel&,
                         const uint64_t* /*words*/) {}

  // Device memory, in program order. A block has the address it was given out
  // with; record_stream is told of streams other than its own.
  virtual void allocated(Stream*, const void*, size_t) {}
  virtual void stream_recorded(Stream&, const void*) {}
  virtual void freed(Stream*, const void*, size_t, FreedTo) {}
  // Back at the driver: nothing queued can touch it any more.
  virtual void segment_freed(const void*, size_t) {}
  // Pinned host memory. Freed means that whoever recorded a use is waited for
  // before the memory is given out again.
  virtual void host_allocated(const void*, size_t) {}
  virtual void host_freed(const void*) {}

  // Whether tasks wait until the observer runs them (Executor::step) instead
  // of having a thread. Constant while installed.
  virtual bool runs_tasks() const { return false; }
};

// Only the pointer; install_observer() (engine/engine.h) is what also tells the
// streams.
void set_observer(Observer* observer);
Observer* observer();

}  // namespace npu
