#include "csrc/sanitizer/schedule.h"

#include <string.h>

#include <algorithm>
#include <limits>

#include "csrc/base/hooks.h"
#include "csrc/driver/driver.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
// Ranks that run the same schedule call a collective at about the same time, so
// it mostly ends within this time, and the interleaving is the seed's. It may
// not: the peers may wait for what this rank does next.
constexpr std::chrono::milliseconds kPatience{100};

// Words: address, bytes. Fills the memory with ones, which read as NaN or -1.
int run_poison(const npu_kernel*, const uint64_t* words, npu_failure*) {
  memset(reinterpret_cast<void*>(words[0]), 0xff, words[1]);
  return NPU_OK;
}
const npu_kernel kPoison{run_poison, "poison", nullptr, 0};

}  // namespace

Schedule::Schedule(const ScheduleOptions& options)
    : poison_(options.poison),
      program_order_(options.seed == 0),
      random_(options.seed) {
  host_priority_ = program_order_ ? kAny : int64_t(random() >> 2);
  for (int i = 0; i < options.changes && options.length; ++i)
    changes_.insert(random() % options.length);
}

// splitmix64.
uint64_t Schedule::random() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

const Task* Schedule::Actor::next() const {
  return executor && !away.joinable() ? executor->ring().front() : nullptr;
}

bool Schedule::Actor::ready() const {
  const Task* task = next();
  if (!task) return false;
  // A failed stream drops its tasks.
  return stream->failed() || (!held_by() && !waits_for_flag(*task));
}

Stream* Schedule::Actor::held_by() const {
  const Task* task = next();
  if (!task || task->marks.kind != TaskKind::kWait) return nullptr;
  const uint64_t* words = task->words();
  Stream* other = reinterpret_cast<Stream*>(words[0]);
  return other->retired().reached(words[1]) ? nullptr : other;
}

bool Schedule::Actor::held_by_flag() const {
  const Task* task = next();
  return task && waits_for_flag(*task);
}

bool Schedule::Actor::held_by_event() const {
  return held_by_flag() && next()->kernel == &kTakeFlag;
}

Schedule::Actor& Schedule::actor_of(Stream& stream) {
  const auto [at, added] = indices_.try_emplace(&stream, actors_.size());
  if (added)
    actors_.push_back({&stream,
                       stream.mode() == StreamMode::kQueued
                           ? std::make_unique<Executor>(stream)
                           : nullptr,
                       int64_t(random() >> 2), at->second});
  return actors_[at->second];
}

Schedule::Actor* Schedule::best(int64_t floor) {
  take_back();
  Actor* found = nullptr;
  for (Actor& a : actors_)
    if (!a.busy && a.ready() && a.priority > floor &&
        (!found || a.priority > found->priority))
      found = &a;
  return found;
}

void Schedule::step(int64_t& priority) {
  if (changes_.contains(steps_++) && !program_order_) priority = --lowest_;
}

void Schedule::run(Actor& actor) {
  const npu_kernel* const kernel = actor.next()->kernel;
  if (kernel && kernel->flags & kWaitsForPeers && !actor.stream->failed())
    return send_away(actor);
  const bool inside = running_;  // called by a task that waits for a flag
  running_ = actor.busy = true;
  actor.executor->step();
  actor.busy = false;
  running_ = inside;
  if (!inside && hooks.after_direct_task) hooks.after_direct_task();
  trace_ = (trace_ ^ actor.index) * 0x100000001b3;
  step(actor.priority);
}

void Schedule::send_away(Actor& actor) {
  actor.busy = true;
  trace_ = (trace_ ^ actor.index) * 0x100000001b3;
  step(actor.priority);
  actor.away = std::thread([this, &actor] {
    actor.executor->step();
    std::lock_guard lock(ended_mutex_);
    actor.back = true;
    ended_.notify_all();
  });
  while_released([&] {
    std::unique_lock lock(ended_mutex_);
    ended_.wait_for(lock, kPatience, [&] { return actor.back; });
  });
}

void Schedule::take_back() {
  for (Actor& actor : actors_) {
    if (!actor.away.joinable()) continue;
    {
      std::lock_guard lock(ended_mutex_);
      if (!actor.back) continue;
      actor.back = false;
    }
    actor.away.join();
    actor.busy = false;
    if (!running_ && hooks.after_direct_task) hooks.after_direct_task();
  }
}

bool Schedule::await_one_away() {
  const auto is = [](const Actor& a) { return a.away.joinable(); };
  if (std::none_of(actors_.begin(), actors_.end(), is)) return false;
  while_released([&] {
    std::unique_lock lock(ended_mutex_);
    ended_.wait(lock, [&] {
      return std::any_of(actors_.begin(), actors_.end(),
                         [](const Actor& a) { return a.back; });
    });
  });
  return true;
}

void Schedule::enter() {
  const std::thread::id self = std::this_thread::get_id();
  if (thread_ == std::thread::id()) thread_ = self;
  if (thread_ != self) several_ = true;
}

void Schedule::run_until(Stream& stream, uint64_t number, Then then) {
  const std::unique_lock lock = lock_released(mutex_);
  enter();
  if (running_) return;
  while (!stream.retired().reached(number)) {
    Actor* actor = best(kAny);
    if (!actor && await_one_away()) continue;
    // Where nothing is ready, the task that waits for a flag is run. Another
    // process may set the flag of an interprocess event. With one thread,
    // nobody can record an external event any more: its wait fails, and the
    // error says where it is.
    if (!actor && then == Then::kSleep) actor = held_by_flag(stream);
    if (actor && several_ && actor->held_by_event()) actor = nullptr;
    if (!actor) {
      // Another thread, or other code of the event loop, has to submit what is
      // missing.
      awaited_.push_back({&stream, number});
      return;
    }
    run(*actor);
  }
}

Schedule::Actor* Schedule::held_by_flag(Stream& stream) {
  Stream* at = &stream;
  for (size_t hops = 0; hops <= actors_.size(); ++hops) {
    Actor& actor = actor_of(*at);
    if (actor.held_by_flag()) return &actor;
    at = actor.held_by();
    if (!at) return nullptr;
  }
  return nullptr;  // streams wait for each other in a circle
}

void Schedule::serve() {
  for (;;) {
    std::erase_if(awaited_, [](const StreamPoint& p) { return p.over(); });
    Actor* actor = awaited_.empty() ? nullptr : best(kAny);
    if (!actor) return;
    run(*actor);
  }
}

// Runs what is left, waits for external events included: without a launcher, a
// wait that was left would hold its stream for ever.
void Schedule::drain() {
  const std::unique_lock lock = lock_released(mutex_);
  for (;;) {
    Actor* actor = best(kAny);
    for (Actor& a : actors_)
      if (!actor && a.held_by_event()) actor = &a;
    if (!actor && await_one_away()) continue;
    if (!actor) return;
    run(*actor);
  }
}

void Schedule::published(Stream& stream, bool) {
  const std::unique_lock lock = lock_released(mutex_);
  actor_of(stream);
  enter();
  if (running_) return;
  trace_ = (trace_ ^ 0xff) * 0x100000001b3;
  step(host_priority_);
  while (Actor* actor = best(host_priority_)) run(*actor);
  serve();
}

// An inline stream waits on this thread, so the other one has to run first.
void Schedule::stream_waits(Stream& stream, Stream& other, uint64_t number) {
  if (stream.mode() == StreamMode::kInline)
    run_until(other, number, Then::kSleep);
}

void Schedule::host_waits(Stream& stream, uint64_t number, WaitReason) {
  run_until(stream, number, Then::kSleep);
}

void Schedule::host_awaits(Stream& stream, uint64_t number) {
  run_until(stream, number, Then::kGoOn);
}

// The caller may poll until it is done, so each poll runs a step.
void Schedule::host_polls(Stream&, uint64_t) {
  const std::unique_lock lock = lock_released(mutex_);
  if (running_) return;
  if (Actor* actor = best(kAny)) run(*actor);
}

bool Schedule::flag_polled() {
  const std::unique_lock lock = lock_released(mutex_);
  Actor* actor = best(kAny);
  if (actor) run(*actor);
  return actor;
}

void Schedule::stream_recorded(Stream&, const void* memory) {
  const std::unique_lock lock = lock_released(mutex_);
  used_elsewhere_.insert(memory);
}

void Schedule::freed(Stream& stream, const void* memory, size_t bytes,
                     FreedTo where) {
  {
    const std::unique_lock lock = lock_released(mutex_);
    // Another stream may still use the memory.
    if (used_elsewhere_.erase(memory)) return;
  }
  if (!poison_ || stream.mode() == StreamMode::kInline) return;
  // A replay on any stream may still use the memory. And in a capture the
  // poison would become a node, so that every replay would overwrite the memory
  // of whoever has it then.
  if (where == FreedTo::kGraph || stream.sink()) return;
  try {
    Submission s;
    if (!stream.begin(2, s)) return;
    s.task->kernel = &kPoison;
    s.words[0] = reinterpret_cast<uint64_t>(memory);
    s.words[1] = bytes;
    stream.commit(s);
    stream.after_mark(s);
  } catch (...) {
    // The wait for a full queue was interrupted; a free cannot fail, so the
    // memory is not poisoned.
  }
}

}  // namespace npu
