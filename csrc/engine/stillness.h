// A moment in which a device runs nothing, whatever other threads submit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/taskqueue/program.h"

namespace npu {

class Stream;

// While it lives, the launchers of the device's queued streams stand still
// between two tasks. Two objects at a time would wait for each other: the
// caller makes sure that there is one. It does not hold back what operators
// that wait, and inline streams, do on their callers' threads.
class Stillness {
 public:
  // Waits up to `patience_ns`; tries again while streams wait for one another.
  Stillness(int device, uint64_t patience_ns);
  ~Stillness();
  Stillness(const Stillness&) = delete;

  // False: the device did not come to rest.
  bool reached() const { return halt_ != nullptr; }

 private:
  // The task that each stream is given, and that ends with the stillness.
  class Halt;
  static std::unique_ptr<Halt> attempt(int device, uint64_t patience_ns);
  static void leave(std::unique_ptr<Halt> halt);

  std::unique_ptr<Halt> halt_;
};

}  // namespace npu
