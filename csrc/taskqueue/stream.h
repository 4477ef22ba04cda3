// A stream: tasks go in on any thread and are launched in order by one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"
#include "csrc/taskqueue/arena.h"
#include "csrc/taskqueue/call_site.h"
#include "csrc/taskqueue/device_queue.h"
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sequence.h"
#include "csrc/taskqueue/task.h"
#include "csrc/taskqueue/task_sink.h"
#include "csrc/taskqueue/waiters.h"

namespace npu {

class Executor;
struct TraceRing;

enum class StreamMode {
  kQueued,  // through the ring and a launcher thread
  kInline,  // on the calling thread, in order with the events it waits for
};

// The first failure of a stream; stays until clear_error().
struct StreamError {
  int32_t code;  // npu_code
  int device;
  int64_t stream;
  uint64_t task;  // position in its stream
  std::string op;
  std::string text;  // what the kernel said
  CallSite site;
  std::string arguments;  // shapes: "[4, 2] [3]"
  // Of a wait for a stream that had failed: what failed there first.
  std::shared_ptr<const StreamError> cause = nullptr;
  std::string message() const;
};

// "npu:0 stream 3", as messages name it.
std::string stream_name(int device, int64_t id);

// What begin() hands out and commit() takes back.
struct Submission {
  Task* task;
  uint64_t* words;  // n_words of them, to be filled
  uint64_t position;
  uint32_t gate;
  bool refused;  // by an observer; commit()'s, where gate is not 0
};

class Stream {
 public:
  static constexpr uint64_t kCapacity = 8192;

  // Streams of the engine are never destroyed: tasks, events and blocks point
  // to them. Throws a runtime_error where there is no memory for the queue.
  Stream(int device, int64_t id, int priority, StreamMode mode,
         uint64_t capacity = kCapacity);
  ~Stream();
  Stream(const Stream&) = delete;

  int device() const { return device_; }
  int64_t id() const { return id_; }
  std::string name() const { return stream_name(device_, id_); }
  int priority() const { return priority_; }
  StreamMode mode() const { return mode_; }
  // Whether tasks end later than the driver has started them.
  bool is_asynchronous() const { return queue_.in_flight(); }
  uint64_t capacity() const { return ring_.capacity(); }

  // Opens a task of `n_words` argument words. False, with nothing changed, when
  // the stream has failed, or belongs to the parent of this forked process.
  // Waits while the ring is full. Throws, with nothing changed, where that wait
  // is interrupted, where there is no thread to launch the first task, or no
  // memory for long arguments. Between begin() and commit() nothing may fail,
  // wait or call out. Any thread.
  [[gnu::always_inline]] bool begin(uint32_t n_words, Submission& s,
                                    CallSite site = {}) {
    // Relaxed: where the failure is noticed a task late, the launcher drops
    // that task.
    s.gate = gate_.load(std::memory_order_relaxed);
    if (s.gate != 0) [[unlikely]]
      return begin_slow(n_words, s, site);
    open(n_words, s, site);
    return true;
  }

  // Makes the task visible to the launcher. The caller has set kernel and
  // words, and kind where it is not a kernel's. Returns nothing and does not
  // throw: from here on the stream owns the outcome.
  void commit(Submission& s) noexcept {
    if (s.gate != 0) [[unlikely]]
      return commit_slow(s);
    if (s.task->stamp) [[unlikely]]
      note_launch(*s.task);
    ring_.publish(s.position);
    ring_.fetch_after(s.position);
    if (parking_.needs_wake()) [[unlikely]]
      rouse();
  }

  // To be called after commit(), once the caller has noted that the task is
  // queued: waits for the task where launches block. Where the caller has
  // waited for the task, or has run it, this throws the stream's error
  // (HookTable::launched). Elsewhere it does not, however soon the task has
  // failed. It also throws what the wait throws, and what an observer throws
  // that refused the task.
  void after_commit(const Submission& s) {
    if (s.gate != 0) [[unlikely]]
      after_commit_slow(s, /*works=*/true);
  }
  // The same for a task that does no work: a mark, or a wait for other work.
  // The host never waits for it, because what it waits for may be launched
  // later by the same thread.
  void after_mark(const Submission& s) {
    if (s.gate != 0) [[unlikely]]
      after_commit_slow(s, /*works=*/false);
  }
  // Where launches block, waits until `number` tasks have retired, and throws
  // the stream's error.
  void wait_where_launches_block(uint64_t number);

  // Like begin(), without a wait: for a caller that opens tasks of several
  // streams and commits all of them or none. Not for a stream that has a sink
  // or is inline.
  enum class Opened { kYes, kFailed, kFull };
  Opened try_begin(uint32_t n_words, Submission& s, CallSite site);
  // Gives up the task that begin() opened: its place in the queue does nothing.
  void cancel(Submission& s) noexcept;
  // Waits while the ring is full. Another thread may fill it again.
  void wait_for_room();
  bool has_room() const { return unfinished() < capacity(); }

  // How many tasks have not retired.
  uint64_t unfinished() const {
    const uint64_t end = tail();
    // Another thread's tasks may have been queued and retired since.
    return end - std::min(end, retired().value());
  }

  // The number of the next task. Everything submitted so far by this thread
  // has a smaller one; `retired() >= tail()` means all of it is done.
  uint64_t tail() const { return ring_.tail(); }
  // The end of what the stream was given so far, for wait_for(): in its queue,
  // or in the capture that takes its tasks.
  uint64_t end();
  Sequence& retired() { return ring_.retired(); }
  const Sequence& retired() const { return ring_.retired(); }
  bool idle() const { return retired().reached(tail()); }

  // True: `port` gets a completion with this token once `number` tasks have
  // retired. False: they have, and nothing is delivered. Never waits.
  bool notify(uint64_t number, CompletionPort& port, uint64_t token) {
    return waiters_.add(retired(), number, port, token);
  }

  // Work submitted to this stream from now on starts after `other` has retired
  // `number` tasks. Never blocks the caller on a queued stream; an inline one
  // waits right here. False when this stream has failed.
  bool wait_for(Stream& other, uint64_t number);

  bool failed() const;
  // The error; null when there is none. Allocates nothing.
  std::shared_ptr<const StreamError> error() const;
  // Waits until what is queued has been dropped, then accepts work again.
  void clear_error();

  // Whether callers wait for each task that they submit while launch_blocks().
  void set_blocking(bool blocking) { set_gate(kBlocking, blocking); }
  // To be called where the list of observers has changed.
  void look_for_observers();
  // Whether each task leaves a record (trace.h). Called by the launcher, or
  // before it starts. Without effect where there is no ring for the records.
  void set_traced(bool traced);
  // Where the records go; null while tasks leave none. Only the launcher.
  TraceRing* trace_ring() const {
    return gate_.load(std::memory_order_relaxed) & kTraced ? trace_ : nullptr;
  }

  // Sends what is submitted from now on to `sink`; null: to the ring again.
  // Only while the caller is the one thread that submits to this stream.
  void set_sink(TaskSink* sink);
  // Where tasks go instead of the ring; usually null.
  TaskSink* sink() const {
    // Acquire: pairs with the release in set_sink().
    return gate_.load(std::memory_order_acquire) & kDiverted
               ? sink_.load(std::memory_order_relaxed)
               : nullptr;
  }
  // Whether a task is done when its submission returns.
  bool waits_for_each_task() const {
    return gate_.load(std::memory_order_relaxed) & (kInlineMode | kBlocking);
  }

  // Ends the launcher after everything submitted is done. Tasks may submit more
  // meanwhile, to any stream. False: there was no launcher. Only at exit and in
  // the destructor.
  bool stop();
  // Whether the launcher of this number has to end.
  bool ends(uint64_t launcher) const {
    // Acquire: pairs with the release in stop().
    return stopping_.load(std::memory_order_acquire) > launcher;
  }
  // Wakes the launcher where it sleeps. Any thread that submits nothing.
  void wake_launcher() { parking_.wake_if_parked(); }
  // Fails the stream, whatever it is doing. Any thread.
  void force_stop();
  // In a forked child: forgets the launcher, and refuses work from now on.
  void abandon_after_fork();

  // Any thread.
  void count_bypass(Bypass reason, uint64_t tasks = 1);
  StreamBlock& block() { return *block_; }
  const StreamBlock& block() const { return *block_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(Task* slots) const;
  };

  friend class Executor;  // takes tasks off the queue's other end

  enum Gate : uint32_t {
    kNotStarted = 1,
    kFailed = 2,
    kInlineMode = 4,
    kBlocking = 8,
    kObserved = 16,
    kForked = 32,
    kTraced = 64,
    kDiverted = 128,
    kTimed = 256,  // an observer asks when each task has run
  };

  [[gnu::always_inline]] void open(uint32_t n_words, Submission& s,
                                   CallSite site) {
    uint64_t* chunk = nullptr;
    if (n_words > Task::kInlineWords) [[unlikely]]
      chunk = arena_.take(n_words);
    s.position = ring_.claim();
    if (s.position == kRingFull) [[unlikely]]
      s.position = claim_when_full(chunk);
    fill(ring_.slot(s.position), chunk, s, site);
  }

  void fill(Task& task, uint64_t* chunk, Submission& s, CallSite site) {
    s.task = &task;
    Task::Marks marks{};
    marks.spilled = chunk != nullptr;
    task.marks = marks;
    task.stamp = is_sampled(s.position) ? ticks() : 0;
    task.site = site.site;
    task.forward_site = site.forward;
    if (chunk) task.inline_words[0] = reinterpret_cast<uint64_t>(chunk);
    s.words = chunk ? chunk : task.inline_words;
  }

  // Notes what the launch took, for the launcher to count. Counting it here
  // would be an atomic addition, which waits until all earlier stores have
  // their cache lines.
  static void note_launch(Task& task) {
    const uint64_t spent = ticks_between(task.stamp, ticks());
    task.marks.launch_ticks = uint32_t(
        spent <= Task::kMostLaunchTicks ? spent : Task::kMostLaunchTicks);
  }
  void set_gate(Gate bit, bool on) {
    // Release: whoever sees the bit finds what belongs to it.
    on ? gate_.fetch_or(bit, std::memory_order_release)
       : gate_.fetch_and(~uint32_t(bit), std::memory_order_relaxed);
  }
  // Whether the stream takes tasks. Starts its launcher where it has none.
  bool ready(Submission& s);
  bool begin_slow(uint32_t n_words, Submission& s, CallSite site);
  void commit_slow(Submission& s) noexcept;
  bool begin_inline(uint32_t n_words, Submission& s, CallSite site);
  void commit_inline(Submission& s);
  void after_commit_slow(const Submission& s, bool works);
  void wait_for_slot();
  uint64_t claim_when_full(uint64_t* chunk);
  // Wakes the launcher, or starts another where it has ended.
  void rouse() noexcept;
  // Throws a runtime_error, with nothing changed, where there is no thread for
  // it.
  void start();
  void launch(uint64_t number);
  void fail(int32_t code, const Task& task, uint64_t position,
            const char* text);
  void fail(StreamError error);

  const int device_;
  const int64_t id_;
  const int priority_;
  const StreamMode mode_;
  // Both may fail, so they come before the block: a claimed one is not given
  // back.
  const std::unique_ptr<Task, Unmap> slots_;
  DeviceQueue queue_{*this};
  StreamBlock* const block_;
  Ring<Task> ring_;
  Arena arena_;

  alignas(kCacheLine) std::atomic<uint32_t> gate_;
  Waiters waiters_;
  TraceRing* trace_ = nullptr;  // the launcher's; kept once had
  Parking parking_;
  // Launchers of smaller numbers than this have to end.
  std::atomic<uint64_t> stopping_{0};
  std::atomic<TaskSink*> sink_{nullptr};

  // No mutex is taken on a steady path, or while another of them is held.
  std::mutex launcher_mutex_;  // guards the next two: start and stop
  std::thread launcher_;
  uint64_t launchers_ = 0;  // started so far
  Sequence ended_;          // launchers that have ended; number n begins at n
  mutable std::mutex error_mutex_;  // guards the next two
  std::shared_ptr<const StreamError> error_;
  // The next error's memory: a launcher could tell nobody that there is none.
  std::shared_ptr<StreamError> spare_ = std::make_shared<StreamError>();

  // For inline mode. The mutex is held from begin() to commit(), and guards the
  // members below it. A task may launch others, which are done before it is.
  std::recursive_mutex inline_mutex_;
  std::unique_ptr<Executor> inline_executor_;
  std::vector<std::unique_ptr<Task>> inline_tasks_;  // by depth
  size_t inline_depth_ = 0;                          // tasks that run
};

}  // namespace npu
