#include "csrc/graph/capture.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include "csrc/driver/driver.h"

#include "csrc/base/hooks.h"
#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/lifetime.h"
#include "csrc/interop/foreign.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr const char* kModes[] = {"global", "thread_local", "relaxed"};

std::string this_thread() {
  char text[32] = "";
  pthread_getname_np(pthread_self(), text, sizeof text);
  return std::string(text) + " (" + std::to_string(gettid()) + ")";
}

// Ends the capture of a thread that ends.
struct ThisThread {
  ~ThisThread() { Capture::get().thread_ends(); }
  std::string line;
};

// Which line the user's program is at. It is asked for on entry, before
// anything is locked, because the answer may need a lock of the interpreter.
// Without memory for it no line is known.
std::string& here() { return PerThread<ThisThread>::get().line; }
void look() {
  here().clear();
  try {
    if (hooks.line) here() = hooks.line();
  } catch (const std::bad_alloc&) {
  }
}

// By reason, as far as a capture meets them.
constexpr const char* kWaits[] = {
    "reading a value on the host (item(), bool())",
    "a blocking copy",
    "waiting for a stream",
    "asking or waiting for an event",
    "torch.npu.synchronize()",
    "an operator that waits for its arguments",
    "returning memory to the driver"};
static_assert(int(WaitReason::kItem) == 0 && int(WaitReason::kAllocator) == 6);

const char* waiting(WaitReason reason) {
  return reason <= WaitReason::kAllocator ? kWaits[int(reason)]
                                          : "waiting for the device";
}

constexpr const char* kWaitRule =
    "captured work does not run, so the host cannot wait for it or read what "
    "it computes; do this before the capture or after it";

}  // namespace

Capture& Capture::get() {
  static Capture* const instance = new Capture;
  return *instance;
}

void Capture::refuse(const std::string& what, const std::string& rule) {
  std::lock_guard lock(mutex_);
  if (!body_) throw CaptureError("npu: the capture has just ended");
  throw CaptureError("npu: " + what + (here().empty() ? "" : " at " + here()) +
                     ", on thread " + this_thread() +
                     ", is not allowed while a graph is captured on " +
                     body_->lanes[0].stream->name() + " by thread " +
                     begun_by_ + " in mode '" + kModes[int(mode_)] +
                     "': " + rule);
}

void Capture::begin(const void* owner, Stream& stream, uint64_t pool,
                    CaptureMode mode, bool check_inputs) {
  look();
  PerThread<ThisThread>::get();  // also where no line is known
  std::lock_guard lock(mutex_);
  if (body_)
    refuse("capture_begin()",
           "one capture at a time; end the other with capture_end(), or give "
           "it up with reset() of its graph, which "
           "torch.npu.NPUGraph.get_currently_capturing_graph() returns");
  if (stream.id() == 0)
    throw CaptureError(
        "npu: capture_begin() on the default stream: a graph is captured on a "
        "stream of its own, as `with torch.npu.graph(g):` makes one");
  if (stream.mode() != StreamMode::kQueued)
    throw CaptureError(
        "npu: capture_begin() on a SyncLaunchStream, which has no queue to "
        "capture; use a torch.npu.Stream");
  auto body = std::make_unique<Body>(stream.device(), pool);
  body->captured.begun = now_ns();
  if (check_inputs) body->inputs = std::make_unique<Inputs>(pool);
  body->lanes.emplace_back().stream = &stream;
  begun_by_ = this_thread();
  allocator(stream.device()).begin_capture(stream, pool);
  // From here on nothing throws: a capture is under way, or there is none.
  body_ = std::move(body);
  owner_ = owner;
  mode_ = mode;
  thread_ = std::this_thread::get_id();
  group_ = nullptr;
  generation_ = (generation_ + 1) & 0x3fffffff;
  failure_ = CaptureFailure::kCount;
  incomplete_ = false;
  set_active_capture(this);
  stream.set_sink(this);
}

void Capture::failed_by(CaptureFailure cause) {
  if (failure_ == CaptureFailure::kCount) failure_ = cause;
}

void Capture::count_end() {
  DeviceBlock& block = segment().devices[body_->device];
  Counter& ended = failure_ == CaptureFailure::kCount
                       ? block.graph_captures
                       : block.graph_capture_failures[int(failure_)];
  // Relaxed: statistics order nothing.
  ended.fetch_add(1, std::memory_order_relaxed);
}

size_t Capture::lane_of(const Stream& stream) const {
  size_t lane = 0;
  while (lane < body_->lanes.size() && body_->lanes[lane].stream != &stream)
    ++lane;
  return lane;
}

Node& Capture::add(size_t lane, Node::Kind kind) {
  auto& in_lane = body_->lanes[lane].nodes;
  Node& node = body_->nodes.emplace_back();
  node.kind = kind;
  node.lane = uint32_t(lane);
  node.previous = in_lane.empty() ? Node::kStart : int(in_lane.back());
  node.line = here();
  in_lane.push_back(uint32_t(body_->nodes.size() - 1));
  node.place = uint32_t(in_lane.size());
  return node;
}

bool Capture::takes_part() const {
  if (std::this_thread::get_id() == thread_) return true;
  return hooks.capture_of_thread && hooks.capture_of_thread() == generation_;
}

void Capture::check_thread(const char* what) {
  if (mode_ == CaptureMode::kRelaxed || takes_part()) return;
  failed_by(CaptureFailure::kThread);
  refuse(what,
         "only the thread that captures gives work to its streams; use another "
         "stream, or capture_error_mode='relaxed'");
}

void Capture::open(Stream& stream, uint32_t n_words, Submission& s) {
  look();
  std::unique_lock lock(mutex_);
  if (!body_ || lane_of(stream) == body_->lanes.size())
    throw CaptureError("npu: the capture of this stream has just ended");
  check_thread("submitting work to a capturing stream");
  words_.assign(n_words, 0);
  lock.release();  // close() unlocks it
  task_.marks = {};
  s.task = &task_;
  s.words = words_.data();
  s.position = body_->nodes.size();
}

Call make_call(const npu_kernel* kernel, std::vector<uint64_t> words) {
  OwnKernel own = captured_work(kernel);
  if (!own.kernel && hooks.own_kernel) own = hooks.own_kernel(kernel);
  return {.kernel = own.kernel ? own.kernel : kernel,
          .own = {own.kernel, own.destroy},
          .words = std::move(words),
          .drawn_word = own.drawn_word};
}

void Capture::close(Stream& stream, Submission&) noexcept {
  std::lock_guard adopted(mutex_);
  mutex_.unlock();  // which open() has locked
  try {
    keep(stream);
  } catch (const std::exception&) {
    // There was no memory. The caller cannot be told here.
    not_kept();
  }
}

void Capture::not_kept() {
  incomplete_ = true;
  failed_by(CaptureFailure::kRule);
}

void Capture::keep(Stream& stream) {
  const size_t lane = lane_of(stream);
  if (task_.marks.kind == TaskKind::kTimestamp) {
    auto* const cell = reinterpret_cast<TimeCell*>(words_[0]);
    try {
      add(lane, Node::Kind::kTimestamp).cell = cell;
    } catch (...) {
      cell->release();  // the task's share
      throw;
    }
    return;
  }
  Call call = make_call(task_.kernel, std::move(words_));
  words_ = {};
  body_->waits_for_peers |= (task_.kernel->flags & kWaitsForPeers) != 0;
  Node& node = add(lane, Node::Kind::kKernel);
  if (call.drawn_word >= 0) {
    // draw() has put here which source it is, and how far from its first
    // offset.
    node.source = int(call.words[size_t(call.drawn_word)]);
    node.draw = call.words[size_t(call.drawn_word) + 1];
  }
  node.call = std::move(call);
  const auto at = uint32_t(body_->nodes.size() - 1);
  const bool grouped = group_ && group_stream_ == &stream;
  if (grouped) {
    if (group_->nodes.empty()) node.entered = group_.get();
    group_->nodes.push_back(at);
  }
  if (!body_->inputs) return;
  body_->inputs->add(node.call, at,
                     grouped ? Inputs::Of::kResults : Inputs::Of::kAll);
  if (grouped) group_->inputs->add(node.call, at, Inputs::Of::kArguments);
}

std::shared_ptr<GraphPool> Capture::pool() {
  std::lock_guard lock(mutex_);
  if (!body_) throw CaptureError("npu: the capture has just ended");
  return body_->graph_pool;
}

Draws Capture::draw(const void* id,
                    const std::function<std::unique_ptr<NumberSource>()>& make,
                    uint64_t count) {
  std::lock_guard lock(mutex_);
  std::vector<CapturedSource>& sources = body_->sources;
  auto at = std::ranges::find(sources, id, &CapturedSource::id);
  if (at == sources.end()) at = sources.insert(at, CapturedSource{id, make()});
  return {uint64_t(at - sources.begin()),
          std::exchange(at->count, at->count + count)};
}

uint64_t Capture::number_of(int node) const {
  return kCapturedNumber | generation_ << 32 | uint64_t(node + 1);
}

uint64_t Capture::mark(Stream& stream) {
  std::lock_guard lock(mutex_);
  if (!body_) throw CaptureError("npu: the capture has just ended");
  const Lane& lane = body_->lanes[lane_of(stream)];
  return number_of(lane.nodes.empty() ? Node::kStart : int(lane.nodes.back()));
}

void Capture::join(Stream& stream) {
  body_->lanes.emplace_back().stream = &stream;
  try {
    allocator(stream.device()).begin_capture(stream, body_->pool);
  } catch (const std::bad_alloc&) {
    body_->lanes.pop_back();
    throw;
  }
  stream.set_sink(this);
}

void Capture::wait(Stream& stream, Stream& other, uint64_t number) {
  look();
  std::lock_guard lock(mutex_);
  if (!body_) throw CaptureError("npu: the capture has just ended");
  const size_t captured = body_->lanes.size();
  if (number < kCapturedNumber) {
    if (&other == &stream) return;
    failed_by(CaptureFailure::kJoin);
    refuse("a wait of a capturing stream for " + other.name(),
           "that work is not part of the capture; let " + other.name() +
               " wait for the capturing stream first, or wait for it before "
               "the capture");
  }
  if ((number >> 32 & 0x3fffffff) != generation_)
    refuse("a wait for an event of an earlier capture",
           "it marks a point of that graph; record it again");
  const int target = int(number & 0xffffffff) - 1;
  if (lane_of(stream) == captured) {
    if (stream.device() != body_->device ||
        stream.mode() != StreamMode::kQueued || stream.id() == 0)
      refuse("a wait of " + stream.name() + " for captured work",
             "only other streams of the same device join a capture, and not "
             "the default one");
    check_thread("joining a stream to a capture");
    join(stream);
  } else if (&other == &stream) {
    return;
  }
  try {
    add(lane_of(stream), Node::Kind::kWait).wait_for = target;
  } catch (const std::bad_alloc&) {
    not_kept();
    throw;
  }
  if (target >= 0) body_->nodes[size_t(target)].signals = true;
}

void Capture::host_waits(const Stream& stream, WaitReason reason) {
  look();
  std::unique_lock lock(mutex_);
  if (!body_) return;
  const bool captured = lane_of(stream) < body_->lanes.size();
  if (!captured && (mode_ == CaptureMode::kRelaxed ||
                    (mode_ == CaptureMode::kThreadLocal && !takes_part())))
    return;
  failed_by(CaptureFailure::kSync);
  refuse(waiting(reason), kWaitRule);
}

void Capture::forbid(const std::string& what, const std::string& rule) {
  look();
  std::lock_guard lock(mutex_);
  if (body_ && (mode_ == CaptureMode::kGlobal || takes_part())) {
    failed_by(CaptureFailure::kRule);
    refuse(what, rule);
  }
}

void Capture::begin_group(Stream& stream) {
  look();
  std::lock_guard lock(mutex_);
  if (!body_ || lane_of(stream) == body_->lanes.size())
    throw CaptureError("npu: graph_task_group_begin() on " + stream.name() +
                       ", which does not capture; call it between "
                       "capture_begin() and capture_end()");
  if (group_)
    refuse("graph_task_group_begin()",
           "groups do not nest; call graph_task_group_end() first");
  auto group = std::make_shared<Group>(body_.get());
  if (body_->inputs) group->inputs = std::make_unique<Inputs>(body_->pool);
  body_->groups.push_back(group);
  group_ = std::move(group);
  group_stream_ = &stream;
}

std::shared_ptr<Group> Capture::end_group(Stream& stream) {
  look();
  std::lock_guard lock(mutex_);
  if (!body_ || !group_ || group_stream_ != &stream)
    throw CaptureError("npu: graph_task_group_end() on " + stream.name() +
                       " without graph_task_group_begin() in this capture");
  const std::shared_ptr<Group> group = std::exchange(group_, nullptr);
  if (group->nodes.empty()) {
    body_->groups.pop_back();
    return nullptr;
  }
  return group;
}

// Takes what was captured so far; the capture is still marked as under way.
std::unique_ptr<Body> Capture::detach() {
  count_end();
  body_->captured.ended = now_ns();
  for (Lane& lane : body_->lanes) {
    lane.stream->set_sink(nullptr);
    allocator(body_->device).end_capture(*lane.stream);
  }
  owner_ = nullptr;
  group_ = nullptr;
  return std::move(body_);
}

// Ends the capture, whether it succeeded or not.
std::unique_ptr<Body> Capture::stop() {
  std::unique_ptr<Body> body = detach();
  set_active_capture(nullptr);
  return body;
}

std::unique_ptr<Body> Capture::end(const void* owner, Stream& stream) {
  look();
  std::unique_ptr<Body> left;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  if (!body_ || owner_ != owner)
    throw CaptureError(
        "npu: capture_end() of a graph that is not being captured; "
        "capture_begin() begins a capture, which is given up where the thread "
        "that called it ends");
  if (&stream != body_->lanes[0].stream)
    refuse("capture_end() on " + stream.name(),
           "a capture ends on the stream that it began on");
  try {
    check_complete(stream);
  } catch (...) {
    left = stop();
    throw;
  }
  return stop();
}

void Capture::check_complete(const Stream& stream) {
  if (incomplete_)
    throw CaptureError(
        "npu: there was no host memory for all that was captured; capture it "
        "again once there is");
  const std::string left = body_->unjoined();
  if (left.empty()) return;
  failed_by(CaptureFailure::kJoin);
  refuse("capture_end()",
         left + " joined the capture and was not joined back; let " +
             stream.name() + " wait for it before capture_end()");
}

// In a forked process the mutex may be locked by a thread that is not there.
std::unique_ptr<Body> Capture::abandon(const void* owner) {
  if (!under_way() || in_bad_fork()) return nullptr;
  std::lock_guard lock(mutex_);
  if (!body_ || (owner && owner_ != owner)) return nullptr;
  failed_by(CaptureFailure::kAbandoned);
  return stop();
}

void Capture::thread_ends() noexcept {
  if (!under_way() || in_bad_fork()) return;
  std::lock_guard lock(mutex_);
  const bool begun_here = std::this_thread::get_id() == thread_;
  if (!body_ || mode_ == CaptureMode::kRelaxed || !begun_here) return;
  failed_by(CaptureFailure::kAbandoned);
  // In this order: a thread that sees no capture, and then waits for the device
  // and calls empty_cache(), gets the memory of the abandoned one back.
  destroy_elsewhere(detach());
  set_active_capture(nullptr);
}

bool Capture::is_of(const void* owner) {
  if (!under_way() || in_bad_fork()) return false;
  std::lock_guard lock(mutex_);
  return body_ && owner_ == owner;
}

void forbid_wait(const Stream& stream, const std::string& what,
                 const std::string& rule) {
  if (!active_capture()) return;
  Capture& capture = Capture::get();
  try {
    capture.host_waits(stream, WaitReason::kOperator);
  } catch (const CaptureError&) {
    capture.refuse(what, rule);
  }
}

void forbid_anywhere(const std::string& what, const std::string& rule) {
  if (active_capture()) Capture::get().forbid(what, rule);
}

void forbid_query(const Stream& stream) {
  forbid_on(stream, "query()", kWaitRule);
}

void forbid_on(const Stream& stream, const std::string& what,
               const std::string& rule) {
  if (!active_capture() || stream.sink() != &Capture::get()) return;
  look();
  Capture::get().refuse(what, rule);
}

}  // namespace npu
