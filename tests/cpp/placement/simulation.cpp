#include "tests/cpp/placement/simulation.h"

#include <cstdlib>
#include <map>

#include "csrc/placement/tuning.h"
#include "tests/cpp/placement/cpus.h"
#include "tests/cpp/placement/simulation_parts.h"

namespace npu::sim {
namespace {

constexpr uint64_t kSliceNs = 3 * kMs, kBalanceNs = 20 * kMs;

}  // namespace

World::World(const Hardware& h, const Load& l)
    : hardware(h), load(l), topology(h.topology()) {
  const auto cpus = size_t(h.cpus);
  found.moved_to.resize(cpus);
  found.most_launchers.resize(cpus);
  count_.resize(cpus);
  current_.resize(cpus);
  since_.resize(cpus);
  const cpu_set_t all = check::first_cpus(h.cpus);
  for (int p = 0; p < l.processes; ++p) {
    processes_.push_back(std::make_unique<Process>(
        Machine{h.cpus, l.tells_quota ? h.quota : Quota{}, l.processes,
                uint32_t(1000 + p)}));
    Process& process = *processes_.back();
    const int home = p * h.cpus / l.processes;
    process.caller = std::make_unique<Caller>(process);
    process.caller->allowed = l.bound ? check::cpus({home}) : all;
    process.caller->cpu = home;
    threads_.push_back(process.caller.get());
    for (int s = 0; s < l.streams; ++s) {
      auto launcher = std::make_unique<Launcher>(process);
      launcher->allowed = launcher->given = all;
      // At first all launchers are on the CPU next to their caller's.
      launcher->cpu = (home + 1) % h.cpus;
      threads_.push_back(launcher.get());
      for (int member = 1; member < l.team; ++member) {
        auto worker = std::make_unique<Worker>(process);
        worker->allowed = all;
        worker->cpu = (home + 1 + member) % h.cpus;
        threads_.push_back(worker.get());
        launcher->team.push_back(std::move(worker));
      }
      process.launchers.push_back(std::move(launcher));
    }
    for (int n = 1; n < std::min(l.pieces, h.cpus); ++n) {
      auto helper = std::make_unique<Helper>(process);
      helper->allowed = all;
      helper->cpu = home;
      helper->runnable = false;
      threads_.push_back(helper.get());
      process.helpers.push_back(std::move(helper));
    }
  }
  for (int n = 0; n < l.neighbours; ++n) {
    neighbours_.push_back(std::make_unique<Neighbour>());
    neighbours_.back()->allowed = all;
    neighbours_.back()->cpu = n % h.cpus;
    threads_.push_back(neighbours_.back().get());
  }
  for (const Thread* thread : threads_)
    if (thread->runnable) ++count_[size_t(thread->cpu)];
}

void World::sleep(Thread& thread, uint64_t until) {
  thread.ready_at = until;
  if (!thread.runnable) return;
  thread.runnable = false;
  --count_[size_t(thread.cpu)];
}

void World::move(Thread& thread, int cpu) {
  if (thread.runnable) --count_[size_t(thread.cpu)], ++count_[size_t(cpu)];
  thread.cpu = cpu;
}

void World::place_woken(Thread& thread, int waker) {
  if (thread.runnable) return;
  int cpu = thread.cpu;
  if (waker >= 0 && CPU_ISSET(size_t(waker), &thread.allowed)) {
    cpu = waker;
  } else if (!CPU_ISSET(size_t(cpu), &thread.allowed)) {
    for (cpu = 0; !CPU_ISSET(size_t(cpu), &thread.allowed);) ++cpu;
  }
  thread.cpu = cpu;
  thread.runnable = true;
  ++count_[size_t(cpu)];
}

// Whether a CPU other than `but` has no launcher of the process, according to
// where the launchers last saw themselves.
bool World::free_of_launchers(const Process& process, const cpu_set_t& allowed,
                              int but) const {
  cpu_set_t free = allowed;
  CPU_CLR(size_t(but), &free);
  for (const auto& l : process.launchers)
    if (l->seen_on >= 0 && l->seen_at + tuning::kAtWorkNs > now)
      CPU_CLR(size_t(l->seen_on), &free);
  return CPU_COUNT(&free) > 0;
}

void World::note_woken(const Launcher& launcher) {
  cpu_set_t others = launcher.given;
  CPU_CLR(size_t(launcher.waker), &others);
  if (launcher.cpu == launcher.waker && CPU_COUNT(&others) > 0)
    ++found.on_producer;
}

// Gives a random launcher other CPUs, whatever it is doing.
void World::taskset() {
  Process& process = *processes_[random.below(uint32_t(processes_.size()))];
  Launcher& launcher =
      *process.launchers[random.below(uint32_t(process.launchers.size()))];
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int n = 1 + int(random.below(uint32_t(hardware.cpus)));
  for (int i = 0; i < n; ++i)
    CPU_SET(random.below(uint32_t(hardware.cpus)), &cpus);
  // A set that is equal to the policy's cannot be told from it.
  if (launcher.loan.lent() && CPU_EQUAL(&cpus, &launcher.loan.set())) return;
  launcher.given = launcher.allowed = cpus;
  if (!CPU_ISSET(size_t(launcher.cpu), &cpus)) {
    int cpu = 0;
    while (!CPU_ISSET(size_t(cpu), &cpus)) ++cpu;
    move(launcher, cpu);
  }
}

// Moves each thread that waits for a CPU to the first one that is idle.
void World::balance() {
  for (Thread* thread : threads_) {
    if (!thread->runnable || count_[size_t(thread->cpu)] < 2) continue;
    for (int cpu = 0; cpu < hardware.cpus; ++cpu)
      if (idle(cpu) && CPU_ISSET(size_t(cpu), &thread->allowed)) {
        move(*thread, cpu);
        break;
      }
  }
}

void World::new_period() {
  if (!hardware.quota.ns || now < period_end_) return;
  period_end_ = now + hardware.quota.period_ns;
  used_ns_ = 0;
  found.worst_period_spin_ns =
      std::max(found.worst_period_spin_ns, period_spin_ns);
  period_spin_ns = 0;
}

void World::check() {
  std::vector<int> at_work(size_t(hardware.cpus));
  for (const auto& process : processes_) {
    std::map<int, int> own;
    for (const auto& l : process->launchers) {
      const bool awake =
          l->state != Launcher::kParked && l->state != Launcher::kAwaitsHelper;
      cpu_set_t common;
      CPU_AND(&common, &l->allowed, &l->given);
      if (!CPU_EQUAL(awake ? &l->allowed : &common,
                     awake ? &l->given : &l->allowed))
        ++found.undone;
      if (l->state != Launcher::kWorks) continue;
      ++own[l->cpu];
      ++at_work[size_t(l->cpu)];
    }
    if (now < kStart + load.span_ns / 2) continue;
    for (const auto& l : process->launchers)
      if (l->state == Launcher::kWorks && own[l->cpu] > 1 &&
          free_of_launchers(*process, l->allowed, l->cpu)) {
        ++found.crowded_turns;
        break;
      }
  }
  for (size_t cpu = 0; cpu < at_work.size(); ++cpu)
    found.most_launchers[cpu] =
        std::max(found.most_launchers[cpu], at_work[cpu]);
}

void World::check_spinners() {
  for (const auto& process : processes_)
    for (const auto& l : process->launchers) {
      const auto* worker = l->runnable
                               ? dynamic_cast<Worker*>(current_[size_t(l->cpu)])
                               : nullptr;
      if (worker && &worker->process == process.get())
        found.behind_spinner_ns += kTurnNs;
    }
}

void World::check_helpers() {
  for (const auto& process : processes_)
    for (const auto& l : process->launchers)
      for (const auto& h : process->helpers) {
        if (!l->runnable || !h->runnable || h->cpu != l->cpu) continue;
        for (int cpu = 0; cpu < hardware.cpus; ++cpu)
          if (idle(cpu)) {
            found.huddled_ns += kTurnNs;
            break;
          }
      }
}

void World::turn() {
  new_period();
  for (Thread* thread : threads_)
    if (!thread->runnable && now >= thread->ready_at) {
      place_woken(*thread, -1);
      thread->ready_at = UINT64_MAX;
    }
  // Chooses whose turn it is: the next thread's, where the current one sleeps
  // or has used up its slice.
  std::vector<Thread*> running(size_t(hardware.cpus));
  std::vector<std::vector<Thread*>> queues(size_t(hardware.cpus));
  for (Thread* thread : threads_)
    if (thread->runnable) queues[size_t(thread->cpu)].push_back(thread);
  for (size_t cpu = 0; cpu < queues.size(); ++cpu) {
    const auto& queue = queues[cpu];
    if (queue.empty()) continue;
    const auto at = std::find(queue.begin(), queue.end(), current_[cpu]);
    if (at != queue.end() && now - since_[cpu] < kSliceNs) continue;
    current_[cpu] =
        at == queue.end() || at + 1 == queue.end() ? queue.front() : *(at + 1);
    since_[cpu] = now;
  }
  for (size_t cpu = 0; cpu < queues.size(); ++cpu) {
    Thread* const thread = current_[cpu];
    if (queues[cpu].empty() || !thread->runnable || size_t(thread->cpu) != cpu)
      continue;
    if (hardware.quota.ns && used_ns_ >= hardware.quota.ns) {
      continue;  // throttled
    }
    used_ns_ += kTurnNs;
    thread->turn(*this);
  }
  for (const auto& process : processes_) {
    const auto step =
        process->crowd.step(now, process->asked_until, process->team_at);
    if (step == Crowd::Step::kGather) process->crowds.count(now);
  }
  check();
  check_spinners();
  check_helpers();
  now += kTurnNs;
}

Findings World::run() {
  uint64_t next_taskset =
      load.tasksets ? load.span_ns / uint64_t(load.tasksets) : UINT64_MAX;
  const uint64_t between = next_taskset;
  for (uint64_t turns = 0; now < kStart + load.span_ns; ++turns) {
    if (turns % (kBalanceNs / kTurnNs) == kBalanceNs / kTurnNs - 1) balance();
    if (now - kStart >= next_taskset) {
      taskset();
      next_taskset += between;
    }
    turn();
  }
  new_period();
  for (const auto& process : processes_) {
    found.worst_fences = std::max(found.worst_fences, process->fenced.most);
    found.worst_crowds = std::max(found.worst_crowds, process->crowds.most);
    found.worst_team_ends =
        std::max(found.worst_team_ends, process->caller->ended.most);
  }
  return std::move(found);
}

Topology Hardware::topology() const {
  Topology topology;
  const int cores = cpus / threads_per_core;
  for (int cpu = 0; cpu < cpus; ++cpu) {
    topology.core[cpu] = int16_t(cpu % cores);
    topology.node[cpu] = int16_t(cpu % cores * nodes / cores);
  }
  for (int from = 0; from < nodes; ++from) {
    auto& row = topology.distances.emplace_back();
    for (int to = 0; to < nodes; ++to)
      row.push_back(10 + 11 * std::abs(from - to));
  }
  return topology;
}

Findings simulate(const Hardware& hardware, const Load& load) {
  return World(hardware, load).run();
}

}  // namespace npu::sim
