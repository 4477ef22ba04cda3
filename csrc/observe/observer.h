// What checkers, profilers and recorders are told about, and the list of those
// that there are.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>

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

// A task that has run, or a kernel of a replay, which is itself not told: the
// kernels stand for it. Times are ticks.
struct TaskRun {
  uint64_t position;  // of the task in its stream
  const char* name;   // lives as long as the process
  uint64_t submitted, started, ended;
};

// Each function is called on the thread that does what it tells. Without an
// observer a launch does not ask for one: its stream's gate word, which it
// reads anyway, says that there is none.
class Observer {
 public:
  virtual ~Observer() = default;

  // What it asks for, besides memory and waits. Constant while it is listed.
  enum Wants : unsigned {
    // To be told of each task, also of waits that are over already, of replays,
    // and of what the host does itself (host_awaits(), host_uses()).
    kTasks = 1,
    kTimes = 2,  // to be told of each task, and when it has run
    kRuns = 4,  // to run the tasks itself (Executor::step): they have no thread
  };
  virtual unsigned wants() const { return kTasks; }

  // The task is complete and about to become visible to the launcher. True
  // refuses a task that has views: its place in the queue does nothing.
  virtual bool submitted(Stream&, uint64_t /*position*/, const Task&) {
    return false;
  }
  // The task is visible now. May throw when it was refused, and where an
  // earlier host_waited() was true.
  virtual void published(Stream&, bool /*refused*/) {}
  // Told of each task and kernel that is work of the device, where somebody
  // asks for the times.
  virtual void ran(Stream&, const TaskRun&) {}

  // The stream is about to be given a replay of these kernels as its next task.
  // May throw: nothing has been queued.
  virtual void replays(Stream&, const KernelCall*, size_t, Captured) {}

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
  // host_waited: true where the program has done something wrong meanwhile, for
  // which raise_found() then throws, or the thread's next published().
  virtual void host_waits(Stream&, uint64_t /*number*/, WaitReason) {}
  virtual bool host_waited(Stream&, uint64_t /*number*/) { return false; }
  virtual void raise_found() {}
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
  virtual void allocated(Stream&, const void*, size_t) {}
  virtual void stream_recorded(Stream&, const void*) {}
  virtual void freed(Stream&, const void*, size_t, FreedTo) {}
  // The block can be reused, as no other stream may touch it any more. An
  // allocator's lock may be held: the function must neither wait nor use device
  // memory.
  virtual void free_completed(Stream&, const void*, size_t) {}
  virtual void segment_allocated(Stream&, const void*, size_t) {}
  // The segment is back at the driver: nothing queued can touch it any more.
  virtual void segment_freed(int /*device*/, const void*, size_t) {}
  virtual void out_of_memory(Stream&, size_t /*asked*/, size_t /*free*/) {}
  // Pinned host memory. After host_freed the memory is handed out again only
  // once every recorded use is over.
  virtual void host_allocated(const void*, size_t) {}
  virtual void host_freed(const void*) {}
};

namespace detail {
// The first place is for one that runs the tasks, since another one may throw.
inline std::array<std::atomic<Observer*>, 8> observers{};
// What they ask for together, and kListed; 0: there is none.
inline std::atomic<unsigned> wants{0};
inline constexpr unsigned kListed = 1u << 31;
}  // namespace detail

// Not 0 where somebody observes. Not inlined: bench/launch_profile.py
// counts the calls.
[[gnu::noinline]] inline unsigned observers() {
  // Relaxed: the places order the objects in them.
  return detail::wants.load(std::memory_order_relaxed);
}

// Whether somebody asks for one of these things.
inline bool observed(unsigned wants) { return observers() & wants; }

namespace detail {
template <typename What, typename... Args>
[[gnu::noinline]] bool tell_each(What what, Args&... args) {
  using Answer = decltype((std::declval<Observer&>().*what)(args...));
  bool any = false;
  for (const auto& place : detail::observers) {
    // Acquire: whoever sees the observer sees what is in it.
    Observer* const o = place.load(std::memory_order_acquire);
    if (!o) continue;
    if constexpr (std::is_void_v<Answer>) {
      (o->*what)(args...);
    } else {
      any |= (o->*what)(args...);
    }
  }
  return any;
}
}  // namespace detail

// Calls the function of each observer. Returns whether one of them says true.
// The question is inlined: allocations and frees ask it each time.
template <typename What, typename... Args>
[[gnu::always_inline]] inline bool tell_observers(What what, Args&&... args) {
  if (!observers()) [[likely]]
    return false;
  return detail::tell_each(what, args...);
}

// Puts the observer into the list, or takes it out. Throws a runtime_error,
// with nothing changed, where there is no place. One thread at a time.
// install_observer() (engine/engine.h) also tells the streams.
inline void list_observer(Observer& observer, bool listed) {
  auto& places = detail::observers;
  // Relaxed, here and below: only this thread changes the places.
  const auto holding = [](const Observer* what) {
    return [what](const std::atomic<Observer*>& place) {
      return place.load(std::memory_order_relaxed) == what;
    };
  };
  auto place = std::ranges::find_if(places, holding(&observer));
  if ((place != places.end()) == listed) return;
  if (listed) {
    const bool runs = observer.wants() & Observer::kRuns;
    const auto last = runs ? places.begin() + 1 : places.end();
    place = std::find_if(places.begin() + !runs, last, holding(nullptr));
    if (place == last)
      throw std::runtime_error(
          runs ? "npu: another schedule runs the tasks; end it before"
               : "npu: seven observers are installed, which is all that there "
                 "is room for; remove one before");
  }
  // Release: pairs with the acquire in tell_observers().
  place->store(listed ? &observer : nullptr, std::memory_order_release);
  unsigned wants = 0;
  for (const auto& at : places)
    if (const Observer* const o = at.load(std::memory_order_relaxed))
      wants |= o->wants() | detail::kListed;
  detail::wants.store(wants, std::memory_order_relaxed);
}

}  // namespace npu
