#include "csrc/graph/body.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "csrc/base/clock.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/lifetime.h"
#include "csrc/observe/observer.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/device_queue.h"
#include "csrc/taskqueue/host_wait.h"

namespace npu {
namespace {

// Two threads may submit graphs of several streams at once. The graphs must
// come in the same order on all streams, or each would wait for the other.
std::mutex several_streams_;

// Gives a replay its name in messages of its stream.
const npu_kernel kReplay{nullptr, "graph replay", nullptr, 0, kRunsKernels};
const npu_kernel kReplayWithPeers{nullptr, kReplay.name, nullptr, 0,
                                  kRunsKernels | kWaitsForPeers};

// The stream, where an observer asks when each kernel has run; else null.
Stream* timed(Stream& stream) {
  return observed(Observer::kTimes) ? &stream : nullptr;
}

}  // namespace

// Runs the kernels of a replay on a device where they end after their start has
// returned: starts one behind another, and waits for all of them together. One
// object serves one run; nothing is in flight when that begins.
class RunAhead {
 public:
  // `in_flight`: null where kernels are done when their start returns, so that
  // there is nothing to wait for.
  // `lane`: whose nodes are run; null: all nodes.
  RunAhead(InFlight* in_flight, const Body& body, const Lane* lane)
      : in_flight_(in_flight),
        first_(in_flight ? in_flight->started() + 1 : 0),
        body_(body),
        lane_(lane) {}

  // Whether kernels end after their start has returned.
  bool late() const { return in_flight_; }

  // Starts a node's kernel. Waits for room, and, where the host runs the
  // kernel, for everything before it. Returns an outcome, perhaps of an earlier
  // node.
  int start(const Node& node, npu_failure& failure) {
    const npu_kernel* const kernel = node.call.kernel;
    const uint64_t* const words = node.call.words.data();
    if (kernel->flags & NPU_KERNEL_ON_HOST) {
      if (const int code = finish(failure)) return code;
      failed_ = &node;
      return kernel->run(kernel, words, &failure);
    }
    uint64_t number;
    const int code =
        in_flight_->start_when_there_is_room(kernel, words, number, failure);
    if (code != NPU_OK) failed_ = &node_of(number);
    return code;
  }

  // Waits until all that was started has ended.
  int finish(npu_failure& failure) {
    if (!in_flight_) return NPU_OK;
    uint64_t number;
    const int code = in_flight_->finish(number, failure);
    if (code != NPU_OK) failed_ = &node_of(number);
    return code;
  }

  // The node whose kernel failed, after an outcome other than NPU_OK.
  const Node& failed() const { return *failed_; }

 private:
  // The node whose kernel has that number. It is looked for where one has
  // failed, so that a replay notes nothing, for which there may be no memory.
  const Node& node_of(uint64_t number) const {
    uint64_t at = first_ - 1;
    for (size_t i = 0;; ++i) {
      const Node& node = body_.nodes[lane_ ? lane_->nodes[i] : i];
      if (node.kind == Node::Kind::kKernel &&
          !(node.call.kernel->flags & NPU_KERNEL_ON_HOST) && ++at == number)
        return node;
    }
  }

  InFlight* const in_flight_;
  const uint64_t first_;  // the number of the first node that is started
  const Body& body_;
  const Lane* const lane_;
  const Node* failed_ = nullptr;
};

Group::~Group() { delete next.load(std::memory_order_relaxed); }

Body::Body(int device, uint64_t pool)
    : graph_pool(npu::graph_pool(device, pool)), device(device), pool(pool) {}

Body::~Body() {
  leave_groups();
  for (Node& node : nodes)
    if (node.cell) node.cell->release();
}

void Body::leave_groups() {
  for (const auto& group : groups) group->body = nullptr;
}

Stream& Body::stream_of(size_t lane, Stream& first) {
  if (lane == 0) return first;
  // Where the caller replays on a side stream of the capture, that one and the
  // capture's first stream change places.
  Stream* own = lanes[lane].stream;
  return own == &first ? *lanes[0].stream : *own;
}

void Body::describe(Submission& s, uint64_t lane) {
  static const PublishedNames names{kReplay.name};
  s.task->marks.kind = TaskKind::kProgram;
  s.task->kernel = waits_for_peers ? &kReplayWithPeers : &kReplay;
  s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(this));
  s.words[1] = lane;
  s.words[2] = replays_;
  s.words[3] = memory_ends_noted();
}

// Gives all tasks of a replay the same numbers. They are reserved only once the
// tasks are open: a replay that is refused or interrupted takes none, or ranks
// would number their later collectives differently.
void Body::reserve_numbers(std::span<Submission> opened) const {
  for (size_t i = 0; i < sources.size(); ++i) {
    const Draws drawn = sources[i].numbers->reserve(sources[i].count);
    for (Submission& s : opened) {
      s.words[kFirstDraw + 2 * i] = drawn.seed;
      s.words[kFirstDraw + 1 + 2 * i] = drawn.offset;
    }
  }
}

// Opens a task on the stream of every lane, or on none, because a queued lane
// waits for the others. It never waits while a task is open, and where it
// throws (Ctrl-C while a queue is full) no task is left open. False: `failed`
// has failed.
bool Body::open_lanes(Stream& first, std::vector<Submission>& opened,
                      Stream*& failed) {
  const CallSite site = call_site();
  for (;;) {
    for (size_t i = 0; i < lanes.size(); ++i)
      stream_of(i, first).wait_for_room();
    size_t claimed = 0;
    const auto cancel_all = [&] {
      for (size_t i = 0; i < claimed; ++i)
        stream_of(i, first).cancel(opened[i]);
    };
    auto last = Stream::Opened::kYes;
    try {
      while (claimed < lanes.size()) {
        failed = &stream_of(claimed, first);
        last = failed->try_begin(n_words(), opened[claimed], site);
        if (last != Stream::Opened::kYes) break;
        ++claimed;
      }
    } catch (...) {  // no thread for a stream's launcher
      cancel_all();
      throw;
    }
    if (last == Stream::Opened::kYes) return true;
    cancel_all();
    if (last == Stream::Opened::kFailed) return false;
  }
}

// The streams of a replay keep the order of the capture, and the first one
// begins before and ends after the others: to everybody else the replay is one
// task of the first. Groups are left out, because their arguments may be
// replaced at any moment.
void Body::announce(Stream& stream) {
  if (!observed(Observer::kTasks)) return;
  std::vector<bool> in_group(nodes.size());
  for (const auto& group : groups)
    for (const uint32_t at : group->nodes) in_group[at] = true;
  std::vector<KernelCall> calls;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == Node::Kind::kKernel && !in_group[i])
      calls.push_back({nodes[i].call.kernel, nodes[i].call.words.data()});
  tell_observers(&Observer::replays, stream, calls.data(), calls.size(),
                 captured);
}

// Lanes of a replay that has failed may still run: the first one has not waited
// for them. False: `failed` has failed.
bool Body::wait_for_torn(Stream& first, Stream*& failed) {
  // Relaxed: whoever cleared the error of the lane's stream has seen it.
  const auto has_failed = [&](const Lane& lane) {
    return replays_ && lane.failed.load(std::memory_order_relaxed) == replays_;
  };
  if (std::none_of(lanes.begin(), lanes.end(), has_failed)) return true;
  for (size_t i = 1; i < lanes.size(); ++i) {
    Stream& other = stream_of(i, first);
    failed = &other;
    if (other.failed()) return false;
    failed = &first;
    if (!first.wait_for(other, other.tail())) return false;
  }
  return true;
}

bool Body::submit(Stream& stream, Stream*& failed) {
  for (size_t i = 0; i < lanes.size(); ++i)
    if (stream_of(i, stream).sink())
      throw CaptureError(
          "npu: replay() of a graph cannot be captured; replay it after the "
          "capture has ended, or capture its operators themselves");
  if (submitting_.exchange(true, std::memory_order_acquire))
    throw std::runtime_error(
        "npu: two threads replay the same graph at the same time; a graph is "
        "replayed by one thread at a time");
  struct Leave {
    std::atomic<bool>& flag;
    ~Leave() { flag.store(false, std::memory_order_release); }
  } leave{submitting_};
  failed = &stream;
  if (stream.failed()) return false;
  if (last_stream_ && last_stream_ != &stream &&
      !stream.wait_for(*last_stream_, last_number_))
    return false;
  if (!wait_for_torn(stream, failed)) return false;
  announce(stream);
  // Where one thread runs all streams, no lane can wait for another, so one
  // task runs all of them.
  bool as_one_task = lanes.size() == 1 || observed(Observer::kRuns);
  for (size_t i = 0; i < lanes.size() && !as_one_task; ++i)
    as_one_task = stream_of(i, stream).waits_for_each_task();
  Submission one;
  std::vector<Submission> several(as_one_task ? 0 : lanes.size());
  const std::span opened =
      as_one_task ? std::span(&one, 1) : std::span(several);
  {
    std::unique_lock<std::mutex> lock;
    if (!as_one_task) lock = lock_released(several_streams_);
    if (as_one_task ? !stream.begin(n_words(), one, call_site())
                    : !open_lanes(stream, several, failed))
      return false;
    for (size_t i = 0; i < opened.size(); ++i)
      describe(opened[i], as_one_task ? kAllLanes : i);
    reserve_numbers(opened);
    for (size_t i = 0; i < opened.size(); ++i)
      stream_of(i, stream).commit(opened[i]);
  }
  last_stream_ = &stream;
  last_number_ = opened[0].position + 1;
  ++replays_;
  overwrites->replayed();
  // Relaxed: statistics order nothing.
  segment().devices[device].graph_replays.fetch_add(1,
                                                    std::memory_order_relaxed);
  for (size_t i = 0; i < opened.size(); ++i)
    stream_of(i, stream).after_commit(opened[i]);
  return true;
}

int Body::run(Stream& stream, const DeviceQueue& queue, const uint64_t* words,
              npu_failure& failure) {
  const size_t n =
      words[1] == kAllLanes ? nodes.size() : lanes[words[1]].nodes.size();
  stream.count_bypass(Bypass::kNested, n);
  return words[1] == kAllLanes ? run_all(stream, queue, words, failure)
                               : run_lane(stream, queue, words, failure);
}

void Body::dropped(Stream& stream, const uint64_t* words) {
  drop(stream, words[1], 0);
  if (words[1] != kAllLanes) lanes[words[1]].give_up(words[2]);
}

// Gives up the nodes of a lane, or of all, from node `first` on.
void Body::drop(const Stream& stream, uint64_t lane, size_t first) const {
  for (size_t i = first; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.kind == Node::Kind::kKernel &&
        (lane == kAllLanes || node.lane == lane))
      drop_kernel(*node.call.kernel, stream, node.call.words.data());
  }
}

namespace {

// Puts `text` before that of the failure, which may have no end.
void put_before(npu_failure& failure, const char* text) {
  const size_t length = strlen(text);
  memmove(failure.text + length, failure.text, sizeof failure.text - length);
  memcpy(failure.text, text, length);
  failure.text[sizeof failure.text - 1] = 0;
}

// Says in the failure which node has failed. There may be no memory.
void name_node(const Body& body, const Node& node, npu_failure& failure) {
  char name[512];
  snprintf(name, sizeof name,
           "node %zu, %s%s%s: ", size_t(&node - body.nodes.data()),
           node.call.kernel->name, node.line.empty() ? "" : ", captured at ",
           node.line.c_str());
  put_before(failure, name);
}

}  // namespace

// Takes the newest arguments of the group, which a queued update may have put
// there. Only now it is known which ones this replay uses, so only here can
// they be found missing. What was freed after the replay was queued is still
// there: `ends` frees had been noted then.
int Body::enter(Group& group, RunAhead& ahead, uint64_t ends,
                npu_failure& failure) {
  const std::unique_ptr<Update> update(
      group.next.exchange(nullptr, std::memory_order_acquire));
  if (update) {
    std::lock_guard lock(calls_mutex);
    for (size_t i = 0; i < group.nodes.size(); ++i)
      std::swap(nodes[group.nodes[i]].call, update->calls[i]);
    std::swap(group.inputs, update->inputs);
  }
  if (!group.inputs || group.inputs->alive(ends)) [[likely]]
    return NPU_OK;
  if (const int code = finish(ahead, failure)) return code;
  const Inputs::Missing missing = group.inputs->missing(ends);
  snprintf(
      failure.text, sizeof failure.text,
      "a tensor that it uses has been freed%s; keep the arguments of a task "
      "group alive until an update has replaced them",
      missing.where().c_str());
  name_node(*this, nodes[missing.node], failure);
  return NPU_ERROR;
}

// Waits until everything that was started has ended.
int Body::finish(RunAhead& ahead, npu_failure& failure) {
  const int code = ahead.finish(failure);
  if (code != NPU_OK) [[unlikely]]
    name_node(*this, ahead.failed(), failure);
  return code;
}

inline int Body::run_node(Node& node, const DeviceQueue& queue, RunAhead& ahead,
                          const uint64_t* words, Stream* timed,
                          npu_failure& failure) {
  if (node.entered) [[unlikely]]
    if (const int code = enter(*node.entered, ahead, words[3], failure))
      return code;
  if (node.kind != Node::Kind::kKernel) [[unlikely]] {
    if (node.kind != Node::Kind::kTimestamp) return NPU_OK;
    if (const int code = finish(ahead, failure)) return code;
    node.cell->note(now_ns());
    return NPU_OK;
  }
  Call& call = node.call;
  if (node.source >= 0) [[unlikely]] {
    const uint64_t* const drawn = words + kFirstDraw;
    call.words[size_t(call.drawn_word)] = drawn[2 * node.source];
    call.words[size_t(call.drawn_word) + 1] =
        drawn[2 * node.source + 1] + node.draw;
  }
  const uint64_t started = timed ? ticks() : 0;
  // Where each kernel is timed, they run one at a time.
  const bool starts = ahead.late() && !timed;
  const int code = starts ? ahead.start(node, failure)
                          : queue.run(call.kernel, call.words.data(), failure);
  if (timed) [[unlikely]]
    tell_observers(&Observer::ran, *timed,
                   TaskRun{timed->retired().value(), call.kernel->name, started,
                           started, ticks()});
  if (code != NPU_OK) [[unlikely]]
    name_node(*this, starts ? ahead.failed() : node, failure);
  return code;
}

int Body::run_all(Stream& stream, const DeviceQueue& queue,
                  const uint64_t* words, npu_failure& failure) {
  Stream* const timed = npu::timed(stream);
  RunAhead ahead(queue.in_flight(), *this, nullptr);
  for (Node& node : nodes)
    if (const int code = run_node(node, queue, ahead, words, timed, failure)) {
      drop(stream, kAllLanes, size_t(&node - nodes.data()));
      return code;
    }
  return finish(ahead, failure);
}

int Body::run_lane(Stream& stream, const DeviceQueue& queue,
                   const uint64_t* words, npu_failure& failure) {
  Stream* const timed = npu::timed(stream);
  Lane& lane = lanes[words[1]];
  RunAhead ahead(queue.in_flight(), *this, &lane);
  const uint64_t replay = words[2];
  if (words[1] == 0) lane.begin(replay);
  uint32_t last = 0;
  const auto run = [&](uint32_t at) {
    Node& node = nodes[at];
    last = at;
    int code;
    if (node.kind != Node::Kind::kWait) {
      code = run_node(node, queue, ahead, words, timed, failure);
    } else if (code = finish(ahead, failure);
               code == NPU_OK && !reach(stream, node, replay)) {
      code = failure.code = NPU_ERROR;
      if (stream.failed()) {
        snprintf(failure.text, sizeof failure.text,
                 "the stream was stopped during a replay");
      } else {
        failure = awaited(node).why;
        put_before(failure, failure.text[0]
                                ? "another stream of this graph has failed: "
                                : "another stream of this graph has failed");
        failure.code = code;
      }
    }
    if (code == NPU_OK && (node.signals || at == lane.nodes.back()))
      code = finish(ahead, failure);
    return code;
  };
  const int code = lane.run(replay, failure, run,
                            [&](uint32_t at) { return nodes[at].signals; });
  if (code != NPU_OK) [[unlikely]]
    drop(stream, words[1], last);
  return code;
}

std::string Body::unjoined() const {
  std::vector<bool> seen(nodes.size());
  std::vector<int> open;
  const auto visit = [&](int node) {
    if (node < 0 || seen[size_t(node)]) return;
    seen[size_t(node)] = true;
    open.push_back(node);
  };
  if (!lanes[0].nodes.empty()) visit(int(lanes[0].nodes.back()));
  while (!open.empty()) {
    const Node& node = nodes[size_t(open.back())];
    open.pop_back();
    visit(node.previous);
    if (node.kind == Node::Kind::kWait) visit(node.wait_for);
  }
  for (const Lane& lane : lanes) {
    if (lane.nodes.empty() || seen[lane.nodes.back()]) continue;
    const Node& last = nodes[lane.nodes.back()];
    return lane.stream->name() +
           " (last: " + (last.call.kernel ? last.call.kernel->name : "a wait") +
           (last.line.empty() ? "" : " at " + last.line) + ")";
  }
  return "";
}

// The lane that a wait waits for.
Lane& Body::awaited(const Node& wait) {
  return lanes[wait.wait_for < 0 ? 0 : nodes[size_t(wait.wait_for)].lane];
}

// Holds a lane until another lane has reached the node. False: it never will.
bool Body::reach(Stream& stream, const Node& wait, uint64_t replay) {
  const size_t place =
      wait.wait_for < 0 ? 0 : nodes[size_t(wait.wait_for)].place;
  Lane& lane = awaited(wait);
  if (lane.reached(replay, place)) return true;
  RunningTime& held = stream.block().held[int(Hold::kBarrier)];
  held.start(now_ns());
  const bool reached =
      lane.wait(replay, place, kTaskSpinNs, [&] { return stream.failed(); });
  held.stop(now_ns());
  return reached;
}

}  // namespace npu
