#include "csrc/engine/profiling.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <new>

#include "csrc/base/clock.h"
#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// Counts profiles. Relaxed: a scope that a thread opens while one begins may go
// either way.
std::atomic<uint64_t> profiles_{0};

// A thread may still be inside of scopes of an earlier profile, whose ends
// nobody has told; so scopes carry the number of their profile.
struct Scopes {
  uint64_t profile = 0;
  std::array<std::vector<uint64_t>, 2> open;
};

std::vector<uint64_t>& open_scopes(Scope kind) {
  const uint64_t now = profiles_.load(std::memory_order_relaxed);
  Scopes& scopes = PerThread<Scopes>::get();
  if (scopes.profile != now) scopes = {now, {}};
  return scopes.open[size_t(kind)];
}

// 0 without memory to look, too: a submission cannot tell anybody.
uint64_t innermost(Scope kind) try {
  const auto& open = open_scopes(kind);
  return open.empty() ? 0 : open.back();
} catch (const std::bad_alloc&) {
  return 0;
}

ProfiledLaunch launch_here(uint64_t position, uint64_t begun, uint64_t ended) {
  thread_local const int32_t thread = int32_t(gettid());
  return {position,
          begun,
          ended,
          innermost(Scope::kOperator),
          innermost(Scope::kRange),
          thread};
}

// Without memory for a record the profile lacks the task: neither a submission
// nor a launcher can tell anybody.
class Profile final : public Observer {
 public:
  unsigned wants() const override { return kTimes; }

  bool submitted(Stream& stream, uint64_t position, const Task& task) override {
    if (stream.mode() == StreamMode::kInline) return false;
    const ProfiledLaunch launch = launch_here(position, task.stamp, ticks());
    std::lock_guard lock(mutex_);
    try {
      const auto of = streams_.try_emplace(&stream, stream.capacity()).first;
      of->second.launches[position % stream.capacity()] = launch;
    } catch (const std::bad_alloc&) {
    }
    return false;
  }

  void ran(Stream& stream, const TaskRun& run) override {
    std::lock_guard lock(mutex_);
    if (stream.mode() == StreamMode::kInline)  // on the thread that launched it
      return add(stream, launch_here(run.position, run.submitted, run.started),
                 run);
    const auto found = streams_.find(&stream);
    if (found == streams_.end()) return;
    OfStream& of = found->second;
    const ProfiledLaunch& launch =
        of.launches[run.position % stream.capacity()];
    if (launch.position != run.position) return;  // launched before
    // ticks() says that the readings of two threads, or of one that moves, may
    // be out of order.
    TaskRun in_order = run;
    in_order.started = std::max({run.started, launch.ended, of.last_end});
    in_order.ended = of.last_end = std::max(in_order.started, run.ended);
    add(stream, launch, in_order);
  }

  void ran_on_caller(const Stream& stream, const TaskRun& run) {
    ProfiledLaunch launch = launch_here(0, run.started, run.started);
    launch.thread = 0;
    std::lock_guard lock(mutex_);
    add(stream, launch, run);
  }

  std::vector<ProfiledRun> take() {
    std::lock_guard lock(mutex_);
    streams_.clear();
    return std::exchange(runs_, {});
  }

 private:
  // The launch of position p is in slot p % capacity, as in the ring.
  struct OfStream {
    explicit OfStream(size_t capacity)
        : launches(capacity, {UINT64_MAX, 0, 0, 0, 0, 0}) {}
    std::vector<ProfiledLaunch> launches;
    uint64_t last_end = 0;
  };

  // Called with the mutex.
  void add(const Stream& stream, const ProfiledLaunch& launch,
           const TaskRun& run) try {
    runs_.push_back({launch, run.started, run.ended, run.name, stream.device(),
                     stream.id()});
  } catch (const std::bad_alloc&) {
  }

  std::mutex mutex_;  // guards the rest
  std::map<const Stream*, OfStream> streams_;
  std::vector<ProfiledRun> runs_;
};

// Never destroyed: a thread may be inside one of its calls.
Profile& profile() {
  static Profile* const instance = new Profile;
  return *instance;
}

}  // namespace

void enter_scope(Scope kind, uint64_t id) { open_scopes(kind).push_back(id); }

void leave_scope(Scope kind) {
  // It is empty where the profile began inside of the scope.
  auto& open = open_scopes(kind);
  if (!open.empty()) open.pop_back();
}

RunsOnCaller::RunsOnCaller(const Stream& stream, const char* name)
    : stream_(stream),
      name_(name),
      started_(observed(Observer::kTimes) ? ticks() : 0) {}

RunsOnCaller::~RunsOnCaller() {
  if (started_)
    profile().ran_on_caller(stream_, {0, name_, started_, started_, ticks()});
}

// In a forked child there is nothing to profile, and a launcher of the parent
// may have held a mutex when it was forked.
void start_profile() {
  if (in_bad_fork()) return;
  profiles_.fetch_add(1, std::memory_order_relaxed);
  profile().take();
  install_observer(profile(), true);
}

std::vector<ProfiledRun> stop_profile() {
  if (in_bad_fork()) return {};
  install_observer(profile(), false);
  return profile().take();
}

}  // namespace npu
