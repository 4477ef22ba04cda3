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

#include "csrc/base/futex.h"
#include "tests/cpp/check.h"

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

// What model.cpp explores with.
class Explorer {
 public:
  // Replaces the newest value v by change(v, *operand) and returns v.
  using Change = uint64_t (*)(uint64_t, uint64_t);
  struct Access {
    uint32_t clock[kMaxThreads] = {};
  };

  virtual int new_location(uint64_t value) = 0;
  virtual void end_location(int location) = 0;
  virtual void set_label(int location, int label) = 0;
  virtual uint64_t load(int location, std::memory_order order) = 0;
  virtual void store(int location, uint64_t value, std::memory_order order) = 0;
  virtual uint64_t read_modify_write(int location, Change change,
                                     uint64_t operand,
                                     std::memory_order order) = 0;
  virtual bool compare_exchange(int location, uint64_t& expected,
                                uint64_t desired, std::memory_order success,
                                std::memory_order failure) = 0;
  virtual void fence(bool heavy) = 0;
  virtual int thread_id() const = 0;
  virtual bool may_fence() const = 0;
  virtual void futex_wait(int location, uint64_t expected) = 0;
  virtual void futex_wake_all(int location) = 0;
  virtual void plain_read(const void* at, Access& reads,
                          const Access& writes) = 0;
  virtual void plain_write(const void* at, const Access& reads,
                           Access& writes) = 0;
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;
};
extern Explorer& explorer;

// Stands in for std::atomic.
template <typename T>
class Atomic {
 public:
  Atomic(T value = T{}) : location_(explorer.new_location(uint64_t(value))) {}
  ~Atomic() { explorer.end_location(location_); }
  Atomic(const Atomic&) = delete;

  void label(int label) { explorer.set_label(location_, label); }
  int location() const { return location_; }

  T load(std::memory_order order) const {
    return T(explorer.load(location_, order));
  }
  void store(T value, std::memory_order order) {
    explorer.store(location_, uint64_t(value), order);
  }
  T exchange(T value, std::memory_order order) {
    return T(explorer.read_modify_write(
        location_, [](uint64_t, uint64_t to) { return to; }, uint64_t(value),
        order));
  }
  T fetch_add(T value, std::memory_order order) {
    return T(explorer.read_modify_write(
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
    const bool done = explorer.compare_exchange(
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
  ~Plain() { explorer.plain_write(this, reads_, writes_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain& other) { return *this = other.get(); }
  Plain& operator=(T value) {
    set(value);
    return *this;
  }
  operator T() const { return get(); }

  void set(T value) {
    explorer.plain_write(this, reads_, writes_);
    value_ = value;
  }
  T get() const {
    explorer.plain_read(this, reads_, writes_);
    return value_;
  }

 private:
  T value_;
  mutable Explorer::Access reads_;
  Explorer::Access writes_;
};

// What derives from it is looked after from new to delete.
struct Allocated {
  static void* operator new(size_t bytes) { return explorer.allocate(bytes); }
  static void operator delete(void* at) { explorer.deallocate(at); }
};

// Stands in for npu::EventFd.
class EventFd {
 public:
  int fd() const { return count_.location(); }
  // Relaxed: the kernel promises no order.
  void signal() {
    count_.fetch_add(1, std::memory_order_relaxed);
    explorer.futex_wake_all(fd());
  }
  void clear() { count_.exchange(0, std::memory_order_relaxed); }
  // Returns once the descriptor is readable.
  static void poll(int fd) { explorer.futex_wait(fd, 0); }

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
  static uint64_t this_thread() { return 100 + uint64_t(explorer.thread_id()); }
  static void let_others_run() { yield(); }
  static bool may_fence() { return explorer.may_fence(); }
  static void nap() { yield(); }
  static void light_fence() { explorer.fence(false); }
  static void heavy_fence() { explorer.fence(true); }
  static Woken futex_wait(const void* word, uint32_t expected, uint64_t) {
    explorer.futex_wait(location(word), expected);
    return Woken::kMaybeChanged;
  }
  static void futex_wake_all(const void* word) {
    explorer.futex_wake_all(location(word));
  }

 private:
  static int location(const void* word) {
    return static_cast<const Atomic<uint32_t>*>(word)->location();
  }
};

// Explores programs, and checks what is found in them.

using enum Operation;
using enum Effect;

inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;

inline constexpr Mutant kNoFence{kFenceLabel, kFence, kSkip};

// Explores Tested(args...).
template <typename Tested, typename... Args>
Outcome explored(const Limits& limits, const Mutant& mutant, Fences fences,
                 const Args&... args) {
  return explore(limits, mutant, fences,
                 [&] { return std::make_unique<Tested>(args...); });
}

inline void report(const char* name, const Outcome& outcome) {
  printf("       %s: %llu executions%s%s\n", name,
         static_cast<unsigned long long>(outcome.executions),
         outcome.violation.empty() ? "" : ": ", outcome.violation.c_str());
}

template <typename Tested, typename... Args>
void expect_correct(const char* name, const Limits& limits, Fences fences,
                    const Args&... args) {
  const Outcome outcome = explored<Tested>(limits, Mutant{}, fences, args...);
  report(name, outcome);
  if (!outcome.violation.empty()) check::fail(name, 0, outcome.violation);
}

// The same, with membarrier.
template <typename Tested, typename... Args>
void expect_correct(const char* name, const Limits& limits,
                    const Args&... args) {
  expect_correct<Tested>(name, limits, Fences::kAsymmetric, args...);
}

inline void expect_found(const char* name, const Outcome& outcome) {
  report(name, outcome);
  if (outcome.violation.empty())
    check::fail(name, 0, "a planted bug is not found");
}

// A bug that is planted in the tested code.
struct Planted {
  const char* name;
  Mutant mutant;
};

template <typename Tested, typename... Args>
void expect_each_found(const Limits& limits,
                       std::initializer_list<Planted> bugs,
                       const Args&... args) {
  for (const Planted& bug : bugs)
    expect_found(bug.name, explored<Tested>(limits, bug.mutant,
                                            Fences::kAsymmetric, args...));
}

}  // namespace npu::model
