#include <setjmp.h>
#include <ucontext.h>

#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kMaxSteps = 5000;

// What a thread knows: how far it has seen each thread (happens-before), and
// the oldest value of each location that it may still read.
struct Knowledge {
  uint32_t clock[kMaxThreads] = {};
  uint16_t seen[kMaxLocations] = {};

  void join_clock(const Knowledge& other) {
    for (int i = 0; i < kMaxThreads; ++i)
      clock[i] = std::max(clock[i], other.clock[i]);
  }
  void join_seen(const Knowledge& other) {
    for (int i = 0; i < kMaxLocations; ++i)
      seen[i] = std::max(seen[i], other.seen[i]);
  }
  void join(const Knowledge& other) {
    join_clock(other);
    join_seen(other);
  }
};

// One value in a location's history, and what it tells an acquiring reader.
struct Message {
  uint64_t value;
  Knowledge carries;
};

struct Location {
  std::vector<Message> history;
  int label = 0;
  bool ended = false;
  Explorer::Access used;
};

// Memory that a program has allocated: kept until the execution is over, so
// that a use after it was freed is noticed.
struct Allocation {
  std::unique_ptr<char[]> memory;
  size_t bytes;
  bool freed = false;
};

enum class State { kReady, kYielding, kAsleep, kDone };

// A point on some stack. To go there takes no system call, which swapcontext()
// makes for the mask of signals: most of the time of an execution.
struct Place {
  jmp_buf registers;
};

[[noreturn]] void go_to(Place& place) { _longjmp(place.registers, 1); }

struct Thread {
  Place begin, now;
  bool has_begin = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  State state = State::kReady;
  int asleep_on = -1;
  Knowledge knows;
};

struct Choice {
  int taken, of;
};

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire ||
         order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release ||
         order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

class Machine final : public Explorer {
 public:
  Outcome explore(const Limits& limits, const Mutant& mutant, Fences fences,
                  const std::function<std::unique_ptr<Program>()>& make) {
    Outcome outcome;
    choices_.clear();
    mutant_ = mutant;
    fences_ = fences;
    do {
      run_once(limits, make);
      ++outcome.executions;
      outcome.violation = violation_;
    } while (violation_.empty() && next_choices());
    return outcome;
  }

  int new_location(uint64_t value) override {
    if (n_locations_ == kMaxLocations) abort();
    Location& location = locations_[n_locations_];
    location.history.clear();
    location.history.push_back({value, {}});
    location.label = made_as(n_locations_);
    location.ended = false;
    location.used = {};
    return n_locations_++;
  }
  void end_location(int at) override {
    if (current_ < 0) return;
    expect_ordered(locations_[at].used,
                   "data race: an atomic ends while it is used");
    locations_[at].ended = true;
  }
  void set_label(int location, int label) override {
    locations_[location].label = label;
  }

  uint64_t load(int at, std::memory_order order) override {
    Location& location = use(at);
    const int newest = int(location.history.size()) - 1;
    if (current_ < 0) return location.history[size_t(newest)].value;
    const int oldest = stale_left_ ? me().knows.seen[at] : newest;
    const int back = choose(newest - oldest + 1);
    if (back) --stale_left_;
    const Message& message = location.history[size_t(newest - back)];
    me().knows.seen[at] = uint16_t(newest - back);
    if (acquires(order) && !hit(location, Operation::kLoad, Effect::kRelax))
      me().knows.join(message.carries);
    const bool lies = hit(location, Operation::kLoad, Effect::kLie);
    return message.value + (lies ? mutant_.amount : 0);
  }

  void store(int at, uint64_t value, std::memory_order order) override {
    Location& location = use(at);
    if (hit(location, Operation::kStore, Effect::kSkip)) return;
    append(
        location, at, value, Knowledge{},
        releases(order) && !hit(location, Operation::kStore, Effect::kRelax));
  }

  uint64_t read_modify_write(int at, Change change, uint64_t operand,
                             std::memory_order order) override {
    return exchange_newest(use(at), at, change, operand, order);
  }

  bool compare_exchange(int at, uint64_t& expected, uint64_t desired,
                        std::memory_order success,
                        std::memory_order failure) override {
    Location& location = use(at);
    const Message& newest = location.history.back();
    if (newest.value != expected) {
      expected = newest.value;
      note_newest(at);
      if (current_ >= 0 && acquires_here(location, failure))
        me().knows.join(newest.carries);
      return false;
    }
    exchange_newest(
        location, at, [](uint64_t, uint64_t to) { return to; }, desired,
        success);
    return true;
  }

  void fence(bool heavy) override {
    if (current_ < 0) return;
    step();
    if (mutant_.label == kFenceLabel) return;
    if (fences_ == Fences::kSymmetric || !heavy) {
      if (fences_ != Fences::kSymmetric) return;  // for the compiler only
      fenced_.join_seen(me().knows);
      me().knows.join_seen(fenced_);
      return;
    }
    // membarrier: every thread passes a fence wherever it is. One that yields
    // has not looked at what it then may not miss.
    for (int t = 0; t < n_threads_; ++t)
      if (can_run(t)) threads_[t].state = State::kReady;
    for (int t = 0; t < n_threads_; ++t) fenced_.join_seen(threads_[t].knows);
    for (int t = 0; t < n_threads_; ++t) threads_[t].knows.join_seen(fenced_);
  }

  // The kernel compares with the newest value, under its own lock.
  void futex_wait(int at, uint64_t expected) override {
    step();
    if (locations_[at].history.back().value != expected) return;
    me().state = State::kAsleep;
    me().asleep_on = at;
    leave();
  }
  void futex_wake_all(int at) override {
    step();
    if (hit(locations_[at], Operation::kWake, Effect::kSkip)) return;
    for (int t = 0; t < n_threads_; ++t)
      if (threads_[t].state == State::kAsleep && threads_[t].asleep_on == at)
        threads_[t].state = State::kReady;
  }

  int thread_id() const override { return current_; }

  bool may_fence() const override { return fences_ != Fences::kNone; }
  void yield() {
    me().state = State::kYielding;
    leave();
    // In the end stores become visible to everybody; this orders nothing.
    for (int i = 0; i < n_locations_; ++i) note_newest(i);
  }

  void violate(const std::string& text) {
    if (violation_.empty()) violation_ = text;
    if (current_ < 0) return;
    go_to(main_);  // the execution is over; its fibers are dropped
  }

  void plain_read(const void* at, Access& reads,
                  const Access& writes) override {
    if (current_ < 0) return;
    expect_allocated(at);
    expect_ordered(writes, "data race: a read is not ordered after a write");
    reads.clock[current_] = me().knows.clock[current_];
  }
  void plain_write(const void* at, const Access& reads,
                   Access& writes) override {
    if (current_ < 0) return;
    expect_allocated(at);
    expect_ordered(writes, "data race: two writes are not ordered");
    expect_ordered(reads, "data race: a write is not ordered after a read");
    writes.clock[current_] = me().knows.clock[current_];
  }

  void* allocate(size_t bytes) override {
    blocks_.push_back({std::make_unique<char[]>(bytes), bytes});
    return blocks_.back().memory.get();
  }
  void deallocate(void* memory) override {
    expect_allocated(memory);
    for (Allocation& block : blocks_)
      if (block.memory.get() == memory) block.freed = true;
  }

 private:
  Thread& me() { return threads_[current_]; }
  bool hit(const Location& location, Operation operation, Effect effect) const {
    return mutant_.label == location.label && mutant_.operation == operation &&
           mutant_.effect == effect;
  }
  // Whether a read-modify-write of this order acquires, or releases.
  bool acquires_here(const Location& location, std::memory_order order) const {
    constexpr auto kOperation = Operation::kReadModifyWrite;
    return acquires(order) && !hit(location, kOperation, Effect::kRelax) &&
           !hit(location, kOperation, Effect::kNoAcquire);
  }
  bool releases_here(const Location& location, std::memory_order order) const {
    constexpr auto kOperation = Operation::kReadModifyWrite;
    return releases(order) && !hit(location, kOperation, Effect::kRelax) &&
           !hit(location, kOperation, Effect::kNoRelease);
  }

  // Begins an operation on an atomic.
  Location& use(int at) {
    step();
    Location& location = locations_[at];
    if (location.ended) violate("an atomic is used after it was freed");
    if (current_ >= 0)
      location.used.clock[current_] = me().knows.clock[current_];
    return location;
  }
  void expect_allocated(const void* at) {
    for (const Allocation& block : blocks_)
      if (block.freed && at >= block.memory.get() &&
          at < block.memory.get() + block.bytes)
        violate("memory is used after it was freed");
  }
  void note_newest(int at) {
    if (current_ >= 0)
      me().knows.seen[at] = uint16_t(locations_[at].history.size() - 1);
  }

  void expect_ordered(const Access& accesses, const char* text) {
    for (int t = 0; t < n_threads_; ++t)
      if (t != current_ && accesses.clock[t] > me().knows.clock[t])
        violate(text);
  }

  uint64_t exchange_newest(Location& location, int at, Change change,
                           uint64_t operand, std::memory_order order) {
    const Message old = location.history.back();
    if (hit(location, Operation::kReadModifyWrite, Effect::kSkip))
      return old.value;
    if (current_ >= 0 && acquires_here(location, order))
      me().knows.join(old.carries);
    // Continues the release sequence of what it read.
    append(location, at, change(old.value, operand), old.carries,
           releases_here(location, order));
    return old.value;
  }

  void append(Location& location, int at, uint64_t value, Knowledge carries,
              bool release) {
    if (current_ >= 0 && release) {
      carries.join(me().knows);
      carries.seen[at] = uint16_t(location.history.size());
    }
    location.history.push_back({value, carries});
    note_newest(at);
    // What follows is not part of what was released.
    if (current_ >= 0) ++me().knows.clock[current_];
  }

  int choose(int of) {
    if (of == 1) return 0;
    if (depth_ == choices_.size()) choices_.push_back({0, of});
    return choices_[depth_++].taken;
  }
  bool next_choices() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of)
      choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  bool can_run(int t) const {
    const Thread& thread = threads_[t];
    return thread.state == State::kReady ||
           (thread.state == State::kYielding && !has_seen_all(t));
  }
  bool has_seen_all(int t) const {
    for (int at = 0; at < n_locations_; ++at)
      if (threads_[t].knows.seen[at] + 1u < locations_[at].history.size())
        return false;
    return true;
  }

  // Called before an operation: may let another thread go first.
  void step() {
    if (current_ < 0) return;
    if (++steps_ > kMaxSteps) violate("does not end");
    if (!preemptions_left_) return;
    int others[kMaxThreads], n = 0;
    for (int t = 0; t < n_threads_; ++t)
      if (t != current_ && can_run(t)) others[n++] = t;
    const int taken = choose(n + 1);
    if (!taken) return;
    --preemptions_left_;
    switch_to(others[taken - 1]);
  }

  // The current thread cannot go on, so another one must.
  void leave() {
    int others[kMaxThreads], n = 0;
    bool all_done = true;
    for (int t = 0; t < n_threads_; ++t) {
      if (can_run(t)) others[n++] = t;
      all_done &= threads_[t].state == State::kDone;
    }
    if (n) return switch_to(others[choose(n)]);
    if (!all_done) violate("nobody can go on: a lost wake-up or a lost value");
    go_to(main_);
  }

  void switch_to(int t) {
    const int from = current_;
    current_ = t;
    threads_[t].state = State::kReady;
    if (from != t && !_setjmp(threads_[from].now.registers))
      go_to(threads_[t].now);
  }

  // Leaves on the thread's stack where each of its executions begins.
  void prepare(int t) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack = {threads_[t].stack.get(), 0, kStackBytes};
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    current_ = t;
    if (!_setjmp(main_.registers)) setcontext(&context);
    threads_[t].has_begin = true;
    current_ = -1;
  }

  static void enter();

  void run_once(const Limits& limits,
                const std::function<std::unique_ptr<Program>()>& make) {
    current_ = -1;
    n_locations_ = 0;
    depth_ = 0;
    steps_ = 0;
    fenced_ = {};
    violation_.clear();
    preemptions_left_ = limits.preemptions;
    stale_left_ = limits.stale_reads;
    program_ = make();
    n_threads_ = program_->threads();
    for (int t = 0; t < n_threads_; ++t) {
      Thread& thread = threads_[t];
      thread.state = State::kReady;
      thread.knows = {};
      thread.knows.clock[t] = 1;
      // It starts after the program was made.
      for (int at = 0; at < n_locations_; ++at)
        thread.knows.seen[at] = uint16_t(locations_[at].history.size() - 1);
      if (!thread.has_begin) prepare(t);
      thread.now = thread.begin;
    }
    if (!_setjmp(main_.registers)) {
      current_ = choose(n_threads_);
      go_to(threads_[current_].now);
    }  // else the execution is over
    current_ = -1;
    if (violation_.empty()) program_->finish();
    if (violation_.empty()) {
      program_.reset();
    } else {
      (void)program_.release();  // it may be in no state to be destroyed
    }
    for (const Allocation& block : blocks_)
      if (!block.freed) violate("memory is never freed");
    blocks_.clear();
  }

  Thread threads_[kMaxThreads];
  Location locations_[kMaxLocations];
  std::vector<Allocation> blocks_;
  int n_threads_ = 0, n_locations_ = 0, current_ = -1;
  Place main_;
  std::unique_ptr<Program> program_;
  std::vector<Choice> choices_;
  size_t depth_ = 0;
  int steps_ = 0, preemptions_left_ = 0, stale_left_ = 0;
  Knowledge fenced_;
  Mutant mutant_;
  Fences fences_ = Fences::kAsymmetric;
  std::string violation_;
};

Machine machine;

void Machine::enter() {
  if (!_setjmp(machine.me().begin.registers)) go_to(machine.main_);
  machine.program_->thread(machine.current_);
  machine.me().state = State::kDone;
  machine.leave();
}

}  // namespace

Outcome explore(const Limits& limits, const Mutant& mutant, Fences fences,
                const std::function<std::unique_ptr<Program>()>& make) {
  return machine.explore(limits, mutant, fences, make);
}
void violate(const std::string& text) { machine.violate(text); }
void yield() { machine.yield(); }

Explorer& explorer = machine;

}  // namespace npu::model
