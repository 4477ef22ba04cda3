#include "csrc/plan/simulation.h"

#include <algorithm>
#include <utility>

#include "csrc/taskqueue/host_wait.h"

namespace npu::plan {
namespace {

constexpr uint64_t kEver = UINT64_MAX - 1;

}  // namespace

struct Simulation::Task {
  TaskTimes times{};
  uint32_t open = 0;   // parts whose end is not known
  bool moved = false;  // it is with the device, or needs none
};

// One stream: its tasks in order, of which the first `moved` are with the
// device and the ends of the first `known` are known.
struct Simulation::Lane {
  uint32_t index;
  DeviceModel* device;
  DeviceModel::Queue* queue;
  std::vector<Task*> tasks;
  size_t moved = 0, known = 0;
  size_t done = 0;        // of the known ones, those that the host can know of
  uint64_t gate = 0;      // tasks that are moved from now on start no earlier
  uint64_t last_end = 0;  // of the known ones
};

Simulation::Simulation(const std::vector<PlanStream>& streams,
                       const std::vector<Work>& works, Setting setting)
    : streams_(streams), works_(works), setting_(std::move(setting)) {}

Simulation::~Simulation() = default;

Simulation::Lane& Simulation::lane(uint32_t stream) {
  if (lanes_.size() <= stream) lanes_.resize(stream + 1);
  auto& lane = lanes_[stream];
  if (lane) return *lane;
  const PlanStream& s = streams_.at(stream);
  auto& device = devices_[s.device];
  if (!device)
    device = std::make_unique<DeviceModel>(setting_.spec.concurrency,
                                           setting_.spec.copy_engines);
  lane = std::make_unique<Lane>();
  lane->index = stream;
  lane->device = device.get();
  lane->queue = device->add(s.priority);
  return *lane;
}

Simulation::Part Simulation::part_of(uint32_t what) const {
  const Work& work = works_.at(what);
  const double stated =
      what < setting_.stated.size() ? setting_.stated[what] : -1;
  if (work.type == TaskType::kCollective)
    return {DeviceModel::Engine::kNetwork, 0, uint64_t(std::max(stated, 0.0))};
  TaskWork amount = work.work;
  amount.flops *= setting_.work;
  amount.bytes *= setting_.work;
  const TaskCost cost = cost_of(setting_.spec, amount);
  if (stated < 0) return {cost.engine, cost.overhead, cost.work};
  // A measured time contains the part that others may run beside.
  const uint64_t beside = std::min(cost.overhead, uint64_t(stated));
  const auto own = uint64_t((stated - double(beside)) * setting_.work);
  return {cost.engine, beside, own};
}

const std::vector<Simulation::Part>& Simulation::parts_of(uint32_t what) {
  if (parts_.size() < works_.size()) parts_.resize(works_.size());
  auto& parts = parts_.at(what);
  const Work& work = works_[what];
  if (!parts.empty() || work.type == TaskType::kNone) return parts;
  if (work.type == TaskType::kReplay) {
    for (const uint32_t part : work.parts) parts.push_back(part_of(part));
  } else {
    parts.push_back(part_of(what));
  }
  return parts;
}

void Simulation::feed(const Entry& entry) {
  now_ += double(entry.host_ns) / setting_.host;
  switch (entry.act) {
    case Act::kLaunch:
    case Act::kStreamWait:
      return submit(entry);
    case Act::kHostWait:
      return wait(entry);
    case Act::kPass:
      now_ += double(entry.amount);
      return;
    case Act::kStep:
      timeline_.steps.push_back({now(), 0});
      step_tasks_.push_back(tasks_.size());
      return;
  }
}

void Simulation::submit(const Entry& entry) {
  Lane& mine = lane(entry.stream);
  make_room(mine, entry.site);
  Task& task = tasks_.emplace_back();
  TaskTimes& times = task.times;
  times.submitted = now();
  times.allocated = entry.allocated;
  times.stream = entry.stream;
  times.site = entry.site;
  times.what = entry.what;
  if (entry.act == Act::kStreamWait) {
    const uint64_t given = lane(entry.other).tasks.size();
    times.after_stream = entry.other;
    times.after_number = given > entry.amount ? given - entry.amount : 0;
    times.what = UINT32_MAX;
  }
  mine.tasks.push_back(&task);
  times.number = mine.tasks.size();
  settle(now());
  while (mine.done < mine.known && mine.tasks[mine.done]->times.ended <= now())
    ++mine.done;
  times.depth = uint32_t(mine.tasks.size() - mine.done);
}

void Simulation::make_room(Lane& lane, uint32_t site) {
  const uint64_t given = lane.tasks.size();
  if (given - lane.done < setting_.capacity) return;
  const uint64_t end = end_of(lane, given - setting_.capacity + 1);
  if (end <= now()) return;
  timeline_.waits.push_back({now(), end, uint32_t(kFullQueue), site});
  now_ = double(end);
}

void Simulation::wait(const Entry& entry) {
  Lane& other = lane(entry.other);
  const uint64_t given = other.tasks.size();
  const uint64_t number = given > entry.amount ? given - entry.amount : 0;
  const uint64_t begun = now();
  if (number) {
    const uint64_t end =
        end_of(other, number) + uint64_t(setting_.spec.complete_ns);
    now_ = std::max(now_, double(end));
  }
  timeline_.waits.push_back({begun, now(), entry.what, entry.site});
}

void Simulation::settle(uint64_t limit) {
  move();
  while (begin_one(limit)) {
  }
}

// The tasks that are waited for have been submitted, and they wait for such
// tasks only: one of them can always begin.
uint64_t Simulation::end_of(Lane& lane, uint64_t number) {
  move();
  while (lane.known < number) begin_one(kEver);
  return lane.tasks[number - 1]->times.ended;
}

bool Simulation::begin_one(uint64_t limit) {
  DeviceModel* first = nullptr;
  uint64_t start = limit;
  for (const auto& [_, device] : devices_) {
    const uint64_t next = device->next_start();
    if (next > start || (first && next == start)) continue;
    first = device.get();
    start = next;
  }
  if (!first) return false;
  DeviceModel::Queue& queue = first->begin_next();
  for (const auto& lane : lanes_) {
    if (!lane || lane->queue != &queue) continue;
    for (const DeviceModel::Span& span : queue.begun) {
      Task& task = *lane->tasks[span.number - 1];
      if (!task.times.started) task.times.started = span.start;
      task.times.ended = span.end;
      --task.open;
    }
    queue.begun.clear();
    if (resolve(*lane)) move();
  }
  return true;
}

// Hands over what may be: what comes after a wait only once it is known when
// the wait ends.
void Simulation::move() {
  for (bool again = true; again;) {
    again = false;
    for (const auto& lane : lanes_)
      if (lane) again = move(*lane) || again;
  }
}

bool Simulation::move(Lane& lane) {
  const size_t before = lane.moved;
  for (; lane.moved < lane.tasks.size(); ++lane.moved) {
    Task& task = *lane.tasks[lane.moved];
    TaskTimes& times = task.times;
    if (times.what == UINT32_MAX) {
      if (const uint64_t number = times.after_number) {
        const Lane& other = *lanes_[times.after_stream];
        if (other.known < number) break;
        lane.gate = std::max(lane.gate, other.tasks[number - 1]->times.ended);
      }
      times.started = times.ended = std::max(lane.gate, times.submitted);
    } else {
      const auto& parts = parts_of(times.what);
      const uint64_t ready = std::max(
          times.submitted + uint64_t(setting_.spec.launch_ns), lane.gate);
      for (const Part& part : parts)
        lane.device->submit(*lane.queue, {times.number, part.engine, ready,
                                          part.overhead, part.work});
      task.open = uint32_t(parts.size());
      if (parts.empty()) times.started = times.ended = times.submitted;
    }
    task.moved = true;
  }
  const bool known = resolve(lane);
  return lane.moved != before || known;
}

// What takes no time ends with the task before it.
bool Simulation::resolve(Lane& lane) {
  const size_t before = lane.known;
  for (; lane.known < lane.tasks.size(); ++lane.known) {
    Task& task = *lane.tasks[lane.known];
    if (!task.moved || task.open) break;
    TaskTimes& times = task.times;
    times.ended = std::max(times.ended, lane.last_end);
    times.started =
        std::min(std::max(times.started, lane.last_end), times.ended);
    lane.last_end = times.ended;
  }
  return lane.known != before;
}

uint64_t Simulation::end_of(uint32_t stream, uint64_t number) {
  Lane& asked = lane(stream);
  number = std::min<uint64_t>(number, asked.tasks.size());
  return number ? end_of(asked, number) : 0;
}

Timeline Simulation::finish() {
  settle(kEver);
  uint64_t latest = 0;
  size_t step = 0;
  for (size_t i = 0; i <= tasks_.size(); ++i) {
    for (; step < step_tasks_.size() && step_tasks_[step] == i; ++step)
      timeline_.steps[step].device = i ? latest : timeline_.steps[step].host;
    if (i == tasks_.size()) break;
    latest = std::max(latest, tasks_[i].times.ended);
    timeline_.tasks.push_back(tasks_[i].times);
  }
  return std::move(timeline_);
}

}  // namespace npu::plan
