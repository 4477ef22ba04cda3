// What a checker, a tracer or a graph capture is told about.
#pragma once

#include <cstddef>
#include <cstdint>

namespace npu {

class Stream;
struct Task;

// Called on the thread that does the thing. With no observer installed none of
// this is reached: streams keep the answer in a word they read anyway.
class Observer {
 public:
  virtual ~Observer() = default;
  // The task is complete and about to become visible to the launcher.
  virtual void submitted(Stream&, uint64_t /*position*/, const Task&) {}
  virtual void event_recorded(Stream&, uint64_t /*number*/) {}
  virtual void stream_waits(Stream&, Stream& /*other*/, uint64_t /*number*/) {}
  virtual void host_waited(Stream&, uint64_t /*number*/) {}
  virtual void allocated(Stream*, const void*, size_t) {}
  virtual void freed(Stream*, const void*, size_t) {}
};

// Installs an observer, or removes it with null. The caller makes sure that no
// thread is inside a call of the old one before destroying it.
void set_observer(Observer* observer);
Observer* observer();

}  // namespace npu
