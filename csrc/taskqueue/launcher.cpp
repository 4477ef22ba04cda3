#include "csrc/taskqueue/launcher.h"

#include <unistd.h>

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/placement/policy.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

constexpr uint64_t kStarvedNs = 1'000'000;

bool is_urgent(const Stream& stream) { return stream.priority() < 0; }

}  // namespace

Launcher::Launcher(Stream& stream, uint64_t number)
    : stream_(stream),
      number_(number),
      placement_(stream.device(), is_urgent(stream)),
      executor_(stream, &placement_),
      idle_(ns_to_ticks(1000)) {
  if (InFlight* const in_flight = executor_.queue().in_flight())
    ahead_.emplace(stream, executor_, *in_flight);
}

void Launcher::run() {
  StreamBlock& block = stream_.block();
  launch_on_this_thread(stream_);
  block.thread.store(uint64_t(gettid()), std::memory_order_relaxed);
  block.alive.start(now_ns());
  const NoHostWaits others_wait_for_this_thread;
  do ahead_ ? ahead_->run_queued() : executor_.run_queued();
  while (wait_for_work());
  block.alive.stop(now_ns());
  block.thread.store(0, std::memory_order_relaxed);
}

bool Launcher::wait_for_work() {
  placement_.rests();
  const bool found = sleep_until_work();
  placement_.works(now_ns(), stream_.tail());
  return found;
}

// What the launcher looks at while it spins.
struct Launcher::Idle {
  Launcher& launcher;

  uint64_t ticks() const { return npu::ticks(); }
  void pause() const { npu::pause(); }
  SpinGrant grant(uint64_t ticks) const { return SpinGrant(ticks); }
  bool work() const { return launcher.executor_.ring().front(); }
  // The launcher of an urgent stream looks as if somebody always waited.
  bool awaited() const {
    return is_urgent(launcher.stream_) || IdlePolicy::awaited(wanted(), next());
  }
  uint64_t rest_ticks() const {
    return ns_to_ticks(IdlePolicy::rest_ns(wanted(), next()));
  }

 private:
  uint64_t wanted() const { return launcher.stream_.retired().wanted(); }
  uint64_t next() const { return launcher.executor_.ring().front_position(); }
};

bool Launcher::sleep_until_work() {
  Ring<Task>& ring = executor_.ring();
  StreamBlock& block = stream_.block();
  const uint64_t start = ticks();
  Idle idle{*this};
  if (uint64_t gap; idle_.look(idle, gap)) {
    bump(block.spins);
    bump(block.starved_ns, ticks_to_ns(gap));
    block.idle.add(ticks_to_ns(gap));
    return true;
  }
  const uint64_t start_ns = ns_at(start);
  block.idle.start(start_ns);
  while (!ring.front()) {
    // It does not end before every claimed task has been published and run.
    const auto claimed = [&] {
      return ring.front_position() != stream_.tail();
    };
    if (stream_.ends(number_) && !claimed() &&
        executor_.parking().leave(claimed)) {
      block.idle.stop(now_ns());
      return false;
    }
    executor_.parking().park([this] {
      if (executor_.ring().front() || stream_.ends(number_)) return true;
      bump(stream_.block().parks);
      return false;
    });
  }
  const uint64_t end_ns = now_ns();
  block.idle.stop(end_ns);
  block.woken_ns.store(end_ns, std::memory_order_relaxed);
  bump(block.starved_ns, std::min(end_ns - start_ns, kStarvedNs));
  idle_.slept(ticks_between(start, ticks()));
  return true;
}

}  // namespace npu
