// What callers and launchers do: the same as the code around the policy does.
#include "csrc/placement/tuning.h"
#include "tests/cpp/placement/simulation_parts.h"

namespace npu::sim {

namespace {

// About as long as libgomp's threads spin without and with more threads than
// CPUs: 300,000 and 100 times.
constexpr uint64_t kTeamSpinNs = 5 * kMs, kThrottledSpinNs = 5 * kUs;

}  // namespace

void Worker::turn(World& world) {
  if (world.now >= until) return world.sleep(*this, UINT64_MAX);
  world.found.workers_spun_ns += kTurnNs;
}

Launcher::Launcher(Process& p) : process(p), seat(p.policy.take_seat()) {}

// Tells the policy, as cpus_have_changed() does.
void Launcher::tell_cpus() {
  if (!loan.changed()) return;
  cpu_set_t all;
  CPU_OR(&all, &loan.owners(), &process.caller->allowed);
  process.policy.set_cpus(CPU_COUNT(&all));
}

// Like SpinGrant and Launcher::sleep_until_work().
void Launcher::start_gap(World& world) {
  state = kSpins;
  slept = false;
  gap_from = granted_at = world.now;
  granted_ns = process.policy.spin(world.now, idle.begin());
  idle.granted(world.now, granted_ns);
}

void Launcher::end_spin(World& world) {
  if (!process.policy.spin_is_limited()) return;
  const uint64_t spun = world.now - granted_at;
  if (spun < granted_ns)
    process.policy.unused_spin(granted_at, granted_ns - spun);
}

void Launcher::sleep(World& world) {
  slept = true;
  if (!process.policy.may_fence(world.now)) {
    ++world.found.naps;
    state = kNaps;
    return world.sleep(*this, world.now + tuning::kNapNs);
  }
  ++world.found.fences;
  process.fenced.count(world.now);
  state = kParked;
  loan.begin(allowed);
  tell_cpus();
  if (waker >= 0 && loan.narrow(allowed, waker)) allowed = loan.set();
  world.sleep(*this, UINT64_MAX);
}

// Like WakePlacement.
void Launcher::wake(World& world, int from) {
  if (state != kParked) return;
  state = kSpins;  // once it runs
  if (from != waker) {
    waker = from;
    if (loan.narrow(allowed, waker)) allowed = loan.set();
  }
  ++world.found.wakes;
  world.place_woken(*this, from);
  world.note_woken(*this);
  if (!loan.lent()) return;
  if (loan.end(allowed)) allowed = loan.owners();
  tell_cpus();
}

// Like Seat::look() and LauncherPlacement::look().
void Launcher::look(World& world) {
  process.asked_until =
      std::max(process.asked_until, others.launches(world.now, queued));
  if (seat < 0 || world.now < next_look) return;
  next_look = world.now + tuning::kBetweenLooksNs;
  const int to = process.policy.place(seat, world.now, {cpu, waker}, allowed,
                                      world.topology);
  seen_on = to < 0 ? cpu : to;
  seen_at = world.now;
  if (to < 0) return;
  ++world.found.moves;
  ++world.found.moved_to[size_t(to)];
  world.move(*this, to);
  if (to == waker && world.free_of_launchers(process, allowed, to))
    ++world.found.on_producer;
}

void Launcher::turn(World& world) {
  if (state == kNaps) state = kSpins, granted_ns = 0;
  if (state == kSpins) {
    if (queued > retired) {
      if (slept) {
        idle.slept(world.now - gap_from);
      } else {
        idle.found(world.now);
        end_spin(world);
      }
      state = kWorks;
      others.wakes(world.now, queued);
    } else if (slept) {
      return sleep(world);  // a nap has ended for nothing
    } else {
      const auto rest = [&] { return IdlePolicy::rest_ns(wanted, retired); };
      const bool awaited = IdlePolicy::awaited(wanted, retired);
      // A look in each turn at most.
      if (idle.next(world.now, awaited, rest).what == IdlePolicy::Do::kSleep) {
        end_spin(world);
        return sleep(world);
      }
      return world.spins(
          std::min(kTurnNs, granted_at + granted_ns - world.now));
    }
  }
  const bool shared = world.load.pieces > 0;
  if (!left_ns && !shared) left_ns = world.load.task_ns;
  if (!team.empty()) process.team_at = world.now;
  for (const auto& worker : team) {
    const bool throttled = process.managed_threads() > world.hardware.cpus;
    worker->until = world.now + (throttled ? kThrottledSpinNs : kTeamSpinNs);
    world.place_woken(*worker, -1);
  }
  uint64_t turn = kTurnNs;
  while (queued > retired) {
    if (shared) {
      if (!run_pieces(world, turn)) return;
    } else {
      if (turn < left_ns) break;
      turn -= left_ns;
      left_ns = world.load.task_ns;
    }
    ++retired;
    ++world.found.tasks;
    if (retired % 16 == 0) look(world);
    Caller& caller = *process.caller;
    if (caller.waiting && retired >= wanted) caller.ready_at = world.now;
  }
  if (queued > retired) {
    left_ns -= turn;
  } else {
    start_gap(world);
  }
}

void Caller::turn(World& world) {
  if (waiting) {
    for (const auto& launcher : process.launchers)
      if (launcher->retired < launcher->queued) {
        if (ends.due(world.now)) ended.count(world.now);
        return world.sleep(*this, world.now + kMs);
      }
    waiting = false;
    left = world.load.burst;
    return world.sleep(*this, world.now + world.load.pause_ns);
  }
  if (left <= 0) left = world.load.burst;
  spent_ns += kTurnNs;
  while (spent_ns >= world.load.launch_ns && left > 0) {
    spent_ns -= world.load.launch_ns;
    --left;
    Launcher& launcher =
        *process.launchers[stream++ % process.launchers.size()];
    ++launcher.queued;
    launcher.wake(world, cpu);
  }
  if (left > 0) return;
  if (world.load.waits) {
    waiting = true;
    for (const auto& launcher : process.launchers)
      launcher->wanted = launcher->queued;
  } else if (world.load.pause_ns) {
    world.sleep(*this, world.now + world.load.pause_ns);
  }
}

}  // namespace npu::sim
