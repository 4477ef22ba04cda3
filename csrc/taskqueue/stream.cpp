#include "csrc/taskqueue/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <functional>
#include <iterator>
#include <new>
#include <stdexcept>

#include "csrc/base/clock.h"
#include "csrc/base/hooks.h"
#include "csrc/driver/driver.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/trace.h"
#include "csrc/observe/work_names.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/executor.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

std::atomic<TaskSink*> active_capture_{nullptr};

// Takes the place of a task that the observer refused or its caller gave up.
int run_nothing(const npu_kernel*, const uint64_t*, npu_failure*) {
  return NPU_OK;
}
const npu_kernel kRefused{run_nothing, "refused", nullptr, 0};
const npu_kernel kCancelled{run_nothing, "cancelled", nullptr, 0};

StreamBlock* make_block(int device, int64_t id, uint64_t capacity) {
  static const PublishedNames names{kWaitName, kRecordName, kRefused.name,
                                    kCancelled.name};
  StreamBlock* block = claim_stream_block();
  if (!block) block = new StreamBlock{};  // not published, still counted
  block->device = device;
  block->stream_id = id;
  block->capacity = capacity;
  return block;
}

// Whether the block belongs to a stream for which the segment had no room.
bool is_unpublished(const StreamBlock* block) {
  const auto first = std::begin(segment().streams);
  return std::less<>()(block, first) ||
         !std::less<>()(block, first + kMaxStreamBlocks);
}

size_t ring_bytes(uint64_t capacity) { return capacity * sizeof(Task); }

Task* map_slots(int device, int64_t id, StreamMode mode, uint64_t capacity) {
  if (mode == StreamMode::kInline) return nullptr;
  void* memory = mmap(nullptr, ring_bytes(capacity), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error(
        stream_name(device, id) + ": no host memory for its queue of " +
        std::to_string(ring_bytes(capacity)) + " bytes: " + strerror(errno) +
        "; the stream can be used once there is memory");
  return static_cast<Task*>(memory);
}

// The shapes of the task's views in their order, as "[4, 2] [3]".
std::string arguments_of(const Task& task) {
  std::string text;
  if (!task.kernel) return text;
  for (uint32_t i = 0; i < task.kernel->n_views; ++i) {
    text += i == 0 ? "[" : " [";
    const char* comma = "";
    for (const int64_t n : sizes_of(task.kernel->views[i], task.words())) {
      text += comma + std::to_string(n);
      comma = ", ";
    }
    text += "]";
  }
  return text;
}

// The caller has waited for the task that it launched, or has run it.
void tell_launched(const Stream& stream) {
  if (hooks.launched) hooks.launched(stream);
}

}  // namespace

TaskSink* active_capture() {
  return active_capture_.load(std::memory_order_acquire);
}

void set_active_capture(TaskSink* capture) {
  active_capture_.store(capture, std::memory_order_release);
}

std::string stream_name(int device, int64_t id) {
  return "npu:" + std::to_string(device) + " stream " + std::to_string(id);
}

std::string StreamError::message() const {
  return stream_name(device, stream) + " task " + std::to_string(task) + ": " +
         op + (code == NPU_OK ? " has not ended: " : " failed: ") + text;
}

Stream::Stream(int device, int64_t id, int priority, StreamMode mode,
               uint64_t capacity)
    : device_(device),
      id_(id),
      priority_(priority),
      mode_(mode),
      slots_(map_slots(device, id, mode, capacity),
             Unmap{ring_bytes(capacity)}),
      block_(make_block(device, id, capacity)),
      ring_(slots_.get(), capacity, block_->tail),
      gate_(mode == StreamMode::kInline ? kInlineMode : kNotStarted),
      inline_executor_(mode == StreamMode::kInline
                           ? std::make_unique<Executor>(*this)
                           : nullptr) {
  // Last: from here on readers see the stream, and nothing can fail any more.
  block_->state.store(uint32_t(StreamState::kRunning),
                      std::memory_order_release);
}

Stream::~Stream() {
  stop();
  block_->state.store(uint32_t(StreamState::kUnused),
                      std::memory_order_release);
  if (is_unpublished(block_)) delete block_;
}

void Stream::Unmap::operator()(Task* slots) const { munmap(slots, bytes); }

bool Stream::ready(Submission& s) {
  if (s.gate & kForked) return false;
  if (s.gate & kNotStarted) {
    start();
    s.gate &= ~uint32_t(kNotStarted);
  }
  return !(s.gate & kFailed);
}

bool Stream::begin_slow(uint32_t n_words, Submission& s, CallSite site) {
  if (s.gate & kDiverted && !(s.gate & kForked)) {
    sink_.load(std::memory_order_relaxed)->open(*this, n_words, s);
    s.task->site = site.site;
    s.task->forward_site = site.forward;
    return true;
  }
  if (!ready(s)) return false;
  if (s.gate & kInlineMode) return begin_inline(n_words, s, site);
  open(n_words, s, site);
  if (s.gate & (kTraced | kTimed)) s.task->stamp = ticks();
  return true;
}

Stream::Opened Stream::try_begin(uint32_t n_words, Submission& s,
                                 CallSite site) {
  // Relaxed: as in begin().
  s.gate = gate_.load(std::memory_order_relaxed) & ~uint32_t(kDiverted);
  if (!ready(s)) return Opened::kFailed;
  // Before the claim: after it nothing may fail.
  uint64_t* const chunk =
      n_words > Task::kInlineWords ? arena_.take(n_words) : nullptr;
  s.position = ring_.claim();
  if (s.position == kRingFull) {
    if (chunk) arena_.give(chunk);
    return Opened::kFull;
  }
  fill(ring_.slot(s.position), chunk, s, site);
  if (s.gate & (kTraced | kTimed)) s.task->stamp = ticks();
  return Opened::kYes;
}

void Stream::cancel(Submission& s) noexcept {
  s.task->marks.kind = TaskKind::kKernel;
  s.task->kernel = &kCancelled;
  commit(s);
}

void Stream::wait_for_room() {
  while (!has_room()) wait_for_slot();
}

void Stream::commit_slow(Submission& s) noexcept {
  s.refused = false;
  if (s.gate & kDiverted) {
    count_bypass(Bypass::kCapture);
    return sink_.load(std::memory_order_relaxed)->close(*this, s);
  }
  s.refused = s.gate & kObserved &&
              tell_observers(&Observer::submitted, *this, s.position, *s.task);
  if (s.refused) {
    if (s.task->marks.kind == TaskKind::kProgram)
      reinterpret_cast<Program*>(s.words[0])->dropped(*this, s.words);
    s.task->marks.kind = TaskKind::kKernel;
    s.task->kernel = &kRefused;
  }
  if (s.gate & kInlineMode) {
    commit_inline(s);
    if (s.gate & kObserved)
      tell_observers(&Observer::host_waited, *this, s.position + 1);
    return;
  }
  if (s.task->stamp) note_launch(*s.task);
  ring_.publish(s.position);
  ring_.fetch_after(s.position);
  if (parking_.needs_wake()) rouse();
}

void Stream::after_commit_slow(const Submission& s, bool works) {
  if (s.gate & kDiverted) return;
  if (s.gate & kObserved)
    tell_observers(&Observer::published, *this, s.refused);
  if (s.gate & kInlineMode) return tell_launched(*this);
  if (works && s.gate & kBlocking) wait_where_launches_block(s.position + 1);
}

void Stream::wait_where_launches_block(uint64_t number) {
  // The launcher that runs a task does not wait for what that task launches.
  if (!launch_blocks() || stream_of_this_thread()) return;
  count_bypass(Bypass::kLaunchBlocking);
  host_wait(*this, number, WaitReason::kStreamSync);
  tell_launched(*this);
}

void Stream::count_bypass(Bypass reason, uint64_t tasks) {
  // Relaxed: statistics order nothing.
  block_->bypassed[int(reason)].fetch_add(tasks, std::memory_order_relaxed);
}

void Stream::wait_for_slot() {
  // The caller is woken once per eighth of the ring, not for each slot. Where
  // the launcher comes to a stop before that, host_wait_for_space() sees that
  // slots are free.
  const uint64_t step = capacity() >= 8 ? capacity() / 8 : 1;
  const uint64_t oldest = tail() - capacity() + 1;
  host_wait_for_space(*this, round_up(oldest, step));
}

uint64_t Stream::claim_when_full(uint64_t* chunk) {
  uint64_t position;
  do {
    try {
      wait_for_slot();
    } catch (...) {
      if (chunk) arena_.give(chunk);
      throw;
    }
  } while ((position = ring_.claim()) == kRingFull);
  return position;
}

uint64_t Stream::end() {
  TaskSink* const to = sink();
  return to ? to->mark(*this) : tail();
}

bool Stream::wait_for(Stream& other, uint64_t number) {
  if (TaskSink* to = sink()) {
    to->wait(*this, other, number);
    return true;
  }
  if (number >= kCapturedNumber) {
    TaskSink* capture = active_capture();
    if (!capture)
      throw CaptureError(
          "npu: this event was recorded while a graph was captured and marks "
          "a point of that graph; record it again to wait for it");
    capture->wait(*this, other, number);
    return true;
  }
  if (&other == this) return !failed();
  const bool over = other.retired().reached(number) && !other.failed();
  // An observed wait is always a task, so that events recorded before and after
  // it differ.
  if (over && !observed(Observer::kTasks)) return !failed();
  tell_observers(&Observer::stream_waits, *this, other, number);
  // A stream without a launcher waits on this thread.
  if (mode_ == StreamMode::kInline && !over)
    host_wait(other, number, WaitReason::kEventSync,
              "a SyncLaunchStream's wait");
  Submission s;
  if (!begin(2, s, call_site())) return false;
  s.task->marks.kind = TaskKind::kWait;
  s.task->kernel = nullptr;
  s.words[0] = reinterpret_cast<uint64_t>(&other);
  s.words[1] = number;
  commit(s);
  after_mark(s);
  return true;
}

// What failed first, of what the failed stream waited for, and that one before.
static std::shared_ptr<const StreamError> cause_of(const Stream& failed) {
  const auto error = failed.error();
  return error && error->cause ? error->cause : error;
}

// Whoever has run the task may have returned any number, and left a text
// without an end. A number that is no code becomes NPU_ERROR here, and stays in
// the text.
void Stream::fail(int32_t code, const Task& task, uint64_t position,
                  const char* text) {
  const bool known = code > NPU_OK && code <= NPU_LINALG_ERROR;
  StreamError error{};
  error.code = known ? code : int32_t(NPU_ERROR);
  error.device = device_;
  error.stream = id_;
  error.task = position;
  error.site = {task.site, task.forward_site};
  if (task.marks.kind == TaskKind::kWait)
    error.cause = cause_of(*reinterpret_cast<Stream*>(task.words()[0]));
  try {
    error.op = task.kernel ? task.kernel->name : "wait";
    error.text.assign(text, strnlen(text, NPU_MAX_ERROR_TEXT));
    if (!known)
      error.text +=
          " (it returned " + std::to_string(code) + ", which is no npu_code)";
    error.arguments = arguments_of(task);
  } catch (const std::bad_alloc&) {
    // The launcher's thread must go on; the error says what it can.
    if (error.text.empty()) error.text = "no host memory";
  }
  fail(std::move(error));
}

void Stream::fail(StreamError error) {
  {
    std::lock_guard lock(error_mutex_);
    if (error_) return;
    bump(block_->errors[error.code]);
    block_->failure.set(error.site.site, error.op.c_str(), error.text.c_str());
    *spare_ = std::move(error);
    error_ = std::move(spare_);
  }
  block_->state.store(uint32_t(StreamState::kFailed),
                      std::memory_order_relaxed);
  set_gate(kFailed, true);
}

void Stream::force_stop() {
  fail({NPU_ERROR, device_, id_, retired().value(), "stop_device",
        "FORCE STOP: the device was stopped; restart_device() makes it take "
        "work again",
        call_site(), ""});
  wake_launcher();  // it may wait for a device that does not answer
}

bool Stream::failed() const {
  return gate_.load(std::memory_order_acquire) & kFailed;
}

std::shared_ptr<const StreamError> Stream::error() const {
  if (!failed()) return nullptr;
  std::lock_guard lock(error_mutex_);
  return error_;
}

void Stream::clear_error() {
  host_wait(*this, tail(), WaitReason::kStreamSync);
  auto spare = std::make_shared<StreamError>();
  std::lock_guard lock(error_mutex_);
  if (!error_) return;
  error_ = nullptr;
  spare_ = std::move(spare);
  block_->state.store(uint32_t(StreamState::kRunning),
                      std::memory_order_relaxed);
  set_gate(kFailed, false);
}

void Stream::look_for_observers() {
  uint32_t bits = 0;
  if (observed(Observer::kTasks | Observer::kTimes)) bits |= kObserved;
  if (observed(Observer::kTimes)) bits |= kTimed;
  gate_.fetch_or(bits, std::memory_order_relaxed);
  gate_.fetch_and(bits | ~uint32_t(kObserved | kTimed),
                  std::memory_order_relaxed);
}

void Stream::set_traced(bool traced) {
  if (mode_ == StreamMode::kInline) return;
  calibrate_trace();
  if (traced && !trace_) trace_ = claim_trace_ring(device_, id_);
  set_gate(kTraced, traced && trace_);
}

void Stream::set_sink(TaskSink* sink) {
  block_->capturing.store(sink != nullptr, std::memory_order_relaxed);
  // Null: the pointer stays, for a submission that has already seen the bit.
  if (sink) sink_.store(sink, std::memory_order_relaxed);
  set_gate(kDiverted, sink);
}

}  // namespace npu
