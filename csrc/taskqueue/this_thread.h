// What holds for the calling thread: whose tasks it runs, whether its launches
// block, and how it waits.
#pragma once

#include <atomic>
#include <stdexcept>

namespace npu {

class Stream;

// Names the stream whose tasks the calling thread runs from now on.
void launch_on_this_thread(Stream& stream);
// That stream, or null.
Stream* stream_of_this_thread();

// How many threads a kernel that starts now on this thread uses, of the `all`
// that torch would (placement/core_share.h).
int core_share_here(int all);

// Whether callers wait for each task that they launch. These are the settings;
// engine/switches.h changes them, and tells the streams.
//
// Whether launches of the whole process block. Relaxed: a launch that races
// with a change may go either way.
std::atomic<bool>& process_blocks();
// Whether those of the calling thread do.
bool& thread_blocks();
// Whether launches of the calling thread block, by either setting.
bool launch_blocks();

// Does what an administrator's process has asked of this one through
// ControlBlock since the last call (engine/switches.cpp). Launchers call it
// once per sampled task. It never waits. Any thread.
void obey_control();

// While one exists, the thread's host waits sleep at once instead of spinning.
class SleepAtOnce {
 public:
  SleepAtOnce() { ++count_; }
  ~SleepAtOnce() { --count_; }
  SleepAtOnce(const SleepAtOnce&) = delete;
  static bool holds() { return count_ > 0; }

 private:
  static inline thread_local int count_ = 0;
};

// While one exists, a host wait of the thread that would have to wait throws a
// LauncherWait instead: the thread runs a stream's tasks.
class NoHostWaits {
 public:
  NoHostWaits() { ++count_; }
  ~NoHostWaits() { --count_; }
  NoHostWaits(const NoHostWaits&) = delete;
  static bool holds() { return count_ > 0; }

 private:
  static inline thread_local int count_ = 0;
};

struct LauncherWait : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace npu
