#include "csrc/observe/profile.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "csrc/base/clock.h"

namespace npu {
namespace {

// Counts profiles. Relaxed: a scope that a thread opens while one begins may go
// either way.
std::atomic<uint64_t> profile_{0};

// A thread may still be inside of scopes of an earlier profile, whose ends
// nobody has told; so scopes carry the number of their profile.
struct Scopes {
  uint64_t profile = 0;
  std::array<std::vector<uint64_t>, 2> open;
};
thread_local Scopes scopes_;

std::vector<uint64_t>& open_scopes(Scope kind) {
  const uint64_t now = profile_.load(std::memory_order_relaxed);
  if (scopes_.profile != now) scopes_ = {now, {}};
  return scopes_.open[size_t(kind)];
}

uint64_t innermost(Scope kind) {
  const auto& open = open_scopes(kind);
  return open.empty() ? 0 : open.back();
}

ProfiledLaunch launch_here(uint64_t position, uint64_t begun) {
  thread_local const int32_t thread = int32_t(gettid());
  return {position,
          begun,
          ticks(),
          innermost(Scope::kOperator),
          innermost(Scope::kRange),
          thread};
}

}  // namespace

void enter_scope(Scope kind, uint64_t id) { open_scopes(kind).push_back(id); }

void leave_scope(Scope kind) {
  // It is empty where the profile began inside of the scope.
  auto& open = open_scopes(kind);
  if (!open.empty()) open.pop_back();
}

void forget_scopes() { profile_.fetch_add(1, std::memory_order_relaxed); }

StreamProfile::StreamProfile(int device, int64_t stream, uint64_t capacity)
    : device_(device),
      stream_(stream),
      launches_(capacity, ProfiledLaunch{UINT64_MAX, 0, 0, 0, 0, 0}) {}

void StreamProfile::launched(uint64_t position, uint64_t begun) {
  launches_[position % launches_.size()] = launch_here(position, begun);
}

StreamProfile::Running StreamProfile::starts(uint64_t position) {
  const ProfiledLaunch& launch = launches_[position % launches_.size()];
  return std::exchange(running_,
                       {launch.position == position ? &launch : nullptr});
}

void StreamProfile::part_ran(const char* name, uint64_t started,
                             uint64_t ended) {
  running_.in_parts = true;
  if (!running_.launch) return;
  // ticks() says that the readings of two threads, or of one that moves, may be
  // out of order.
  started = std::max({started, running_.launch->ended, running_.last_end});
  ended = running_.last_end = std::max(started, ended);
  add(*running_.launch, name, started, ended);
}

void StreamProfile::ran(const char* name, uint64_t started, uint64_t ended) {
  if (running_.launch && !running_.in_parts)
    add(*running_.launch, name, started, ended);
}

void StreamProfile::ran_on_caller(const char* name, uint64_t started,
                                  uint64_t ended) {
  ProfiledLaunch launch = launch_here(0, started);
  launch.thread = 0;
  add(launch, name, started, ended);
}

void StreamProfile::add(const ProfiledLaunch& launch, const char* name,
                        uint64_t started, uint64_t ended) {
  std::lock_guard lock(mutex_);
  runs_.push_back({launch, started, ended, name, device_, stream_});
}

void StreamProfile::clear() {
  std::lock_guard lock(mutex_);
  runs_.clear();
}

void StreamProfile::take(std::vector<ProfiledRun>& into) {
  std::vector<ProfiledRun> mine;
  {
    std::lock_guard lock(mutex_);
    mine.swap(runs_);
  }
  into.insert(into.end(), mine.begin(), mine.end());
}

}  // namespace npu
