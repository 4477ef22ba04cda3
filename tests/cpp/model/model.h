// A machine for exploring all schedules of a small concurrent program: its
// threads are fibers, its atomics remember every value they ever had.
//
// Before each atomic operation another thread may be chosen, and each load may
// return any value that the memory model allows, not only the newest. explore()
// runs the program once per combination of choices, depth first, with at most
// `preemptions` switches away from a thread that could go on and `stale_reads`
// loads of an old value.
//
// Memory model: per-location coherence; release and acquire; release sequences
// through read-modify-writes; sequentially consistent fences; membarrier.
// Stores take effect in the order in which they run. Plain data is checked for
// accesses that no release/acquire pair orders, and memory for use after it was
// freed and for being left at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "csrc/base/futex.h"

namespace npu::model {

inline constexpr int kMaxThreads = 4;
inline constexpr int kMaxLocations = 20;

class Program {
 public:
  virtual ~Program() = default;
  virtual int threads() const = 0;
  virtual void thread(int id) = 0;
  // After all threads have ended.
  virtual void finish() {}
};

struct Limits {
  int preemptions = 3;
  int stale_reads = 2;
};

struct Outcome {
  uint64_t executions = 0;
  std::string violation;  // of the first bad execution; "" when there is none
};

enum class Operation { kLoad, kStore, kReadModifyWrite, kWake, kFence };
enum class Effect {
  kRelax,      // the operation orders nothing
  kNoAcquire,  // half of that, for a read-modify-write
  kNoRelease,  // the other half
  kSkip,       // it does not happen
  kLie,        // a load returns a value that is larger by `amount`
};

// A planted bug: what becomes of one kind of operation on the atomics that
// carry `label`.
struct Mutant {
  int label = 0;  // 0: no mutant
  Operation operation = Operation::kLoad;
  Effect effect = Effect::kRelax;
  uint64_t amount = 0;
};
inline constexpr int kFenceLabel = 100;
// The label that the n-th atomic of a program has from the start.
constexpr int made_as(int n) { return 1000 + n; }

enum class Fences {
  kAsymmetric,
  kSymmetric,
  kNone,  // whoever wants to sleep may not, and looks again and again
};

Outcome explore(const Limits& limits, const Mutant& mutant, Fences fences,
                const std::function<std::unique_ptr<Program>()>& make);

// For use inside a program:

// Ends the execution with a violation.
void violate(const std::string& text);
inline void require(bool condition, const char* text) {
  if (!condition) violate(text);
}
// A polling loop's turn: goes on once there is something new to see.
void yield();

namespace detail {
int new_location(uint64_t value);
void end_location(int location);
void set_label(int location, int label);
uint64_t load(int location, std::memory_order order);
void store(int location, uint64_t value, std::memory_order order);
// Replaces the newest value v by change(v, *operand) and returns v.
using Change = uint64_t (*)(uint64_t, uint64_t);
uint64_t read_modify_write(int location, Change change, uint64_t operand,
                           std::memory_order order);
bool compare_exchange(int location, uint64_t& expected, uint64_t desired,
                      std::memory_order success, std::memory_order failure);
void light_fence();
void heavy_fence();
int thread_id();
bool may_fence();
void futex_wait(int location, uint64_t expected);
void futex_wake_all(int location);

struct Access {
  uint32_t clock[kMaxThreads] = {};
};
void plain_read(const void* at, Access& reads, const Access& writes);
void plain_write(const void* at, const Access& reads, Access& writes);

void* allocate(size_t bytes);
void deallocate(void* memory);
}  // namespace detail

// Stands in for std::atomic.
template <typename T>
class Atomic {
 public:
  Atomic(T value = T{}) : location_(detail::new_location(uint64_t(value))) {}
  ~Atomic() { detail::end_location(location_); }
  Atomic(const Atomic&) = delete;

  void label(int label) { detail::set_label(location_, label); }
  int location() const { return location_; }

  T load(std::memory_order order) const {
    return T(detail::load(location_, order));
  }
  void store(T value, std::memory_order order) {
    detail::store(location_, uint64_t(value), order);
  }
  T exchange(T value, std::memory_order order) {
    return T(detail::read_modify_write(
        location_, [](uint64_t, uint64_t to) { return to; }, uint64_t(value),
        order));
  }
  T fetch_add(T value, std::memory_order order) {
    return T(detail::read_modify_write(
        location_, [](uint64_t v, uint64_t by) { return v + by; },
        uint64_t(value), order));
  }
  T fetch_sub(T value, std::memory_order order) {
    return fetch_add(T(-value), order);
  }
  bool compare_exchange_weak(
      T& expected, T desired, std::memory_order success,
      std::memory_order failure = std::memory_order_relaxed) {
    uint64_t seen = uint64_t(expected);
    const bool done = detail::compare_exchange(
        location_, seen, uint64_t(desired), success, failure);
    expected = T(seen);
    return done;
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order success) {
    return compare_exchange_weak(expected, desired, success);
  }

 private:
  int location_;
};

// Plain data: reports accesses that are not ordered.
template <typename T>
class Plain {
 public:
  explicit Plain(T value = T{}) { set(value); }
  ~Plain() { detail::plain_write(this, reads_, writes_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain& other) { return *this = other.get(); }
  Plain& operator=(T value) {
    set(value);
    return *this;
  }
  operator T() const { return get(); }

  void set(T value) {
    detail::plain_write(this, reads_, writes_);
    value_ = value;
  }
  T get() const {
    detail::plain_read(this, reads_, writes_);
    return value_;
  }

 private:
  T value_;
  mutable detail::Access reads_;
  detail::Access writes_;
};

// What derives from it is looked after from new to delete.
struct Allocated {
  static void* operator new(size_t bytes) { return detail::allocate(bytes); }
  static void operator delete(void* at) { detail::deallocate(at); }
};

// Stands in for npu::EventFd.
class EventFd {
 public:
  int fd() const { return count_.location(); }
  // Relaxed: the kernel promises no order.
  void signal() {
    count_.fetch_add(1, std::memory_order_relaxed);
    detail::futex_wake_all(fd());
  }
  void clear() { count_.exchange(0, std::memory_order_relaxed); }
  // Returns once the descriptor is readable.
  static void poll(int fd) { detail::futex_wait(fd, 0); }

 private:
  Atomic<uint64_t> count_;
};

// Stands in for npu::WakePlacement: it only checks that its calls are ordered.
class WakePlacement {
 public:
  void forget_sleeper() { turn_.set(0); }
  void before_sleep() { turn_.set(1); }
  void before_wake() { turn_.set(2); }
  void after_sleep() { turn_.set(0); }

 private:
  Plain<int> turn_;
};

// Stands in for npu::System.
struct System {
  template <typename T>
  using Atomic = model::Atomic<T>;
  template <typename T>
  using Plain = model::Plain<T>;
  using Allocated = model::Allocated;
  using EventFd = model::EventFd;
  using WakePlacement = model::WakePlacement;

  // Larger than the numbers that stand for no thread (SoleUser).
  static uint64_t this_thread() { return 100 + uint64_t(detail::thread_id()); }
  static void let_others_run() { yield(); }
  static bool may_fence() { return detail::may_fence(); }
  static void nap() { yield(); }
  static void light_fence() { detail::light_fence(); }
  static void heavy_fence() { detail::heavy_fence(); }
  static Woken futex_wait(const void* word, uint32_t expected, uint64_t) {
    detail::futex_wait(location(word), expected);
    return Woken::kMaybeChanged;
  }
  static void futex_wake_all(const void* word) {
    detail::futex_wake_all(location(word));
  }

 private:
  static int location(const void* word) {
    return static_cast<const Atomic<uint32_t>*>(word)->location();
  }
};

}  // namespace npu::model
