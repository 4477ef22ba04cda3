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
// accesses that no release/acquire pair orders.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "csrc/base/futex.h"

namespace npu::model {

inline constexpr int kMaxThreads = 4;
inline constexpr int kMaxLocations = 16;

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
  kRelax,  // the operation orders nothing
  kSkip,   // it does not happen
  kLie,    // a load returns a value that is larger by `amount`
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
void set_label(int location, int label);
uint64_t load(int location, std::memory_order order);
void store(int location, uint64_t value, std::memory_order order);
// Replaces the newest value v by change(v, *operand) and returns v.
using Change = uint64_t (*)(uint64_t, uint64_t);
uint64_t read_modify_write(int location, Change change, uint64_t operand,
                           std::memory_order order);
bool compare_exchange(int location, uint64_t& expected, uint64_t desired,
                      std::memory_order success);
void light_fence();
void heavy_fence();
int thread_id();
bool may_fence();
void futex_wait(int location, uint64_t expected);
void futex_wake_all(int location);

struct Access {
  uint32_t clock[kMaxThreads] = {};
};
void plain_read(Access& reads, const Access& writes);
void plain_write(const Access& reads, Access& writes);
}  // namespace detail

// Stands in for std::atomic.
template <typename T>
class Atomic {
 public:
  Atomic(T value = T{}) : location_(detail::new_location(uint64_t(value))) {}
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
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order = std::memory_order_relaxed) {
    uint64_t seen = uint64_t(expected);
    const bool done =
        detail::compare_exchange(location_, seen, uint64_t(desired), success);
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
  void set(T value) {
    detail::plain_write(reads_, writes_);
    value_ = value;
  }
  T get() {
    detail::plain_read(reads_, writes_);
    return value_;
  }

 private:
  T value_{};
  detail::Access reads_, writes_;
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
