#include "csrc/plan/simulation.h"

#include <algorithm>
#include <utility>

#include "csrc/taskqueue/host_wait.h"

namespace npu::plan {
namespace {

constexpr uint64_t kEver = UINT64_MAX - 1;
constexpr uint32_t kWaitForStream = UINT32_MAX;  // in place of an operation

}  // namespace

Simulation::SimulatedStream& Simulation::stream_of(uint32_t index) {
  const auto found = streams_.find(index);
  if (found != streams_.end()) return found->second;
  const PlanStream& given = given_streams_.at(index);
  const EmulatedSpec& spec = setting_.spec;
  DeviceModel& device =
      devices_.try_emplace(given.device, spec.concurrency, spec.copy_engines)
          .first->second;
  SimulatedStream stream{device, device.add(given.priority)};
  return streams_.emplace(index, std::move(stream)).first->second;
}

TaskCost Simulation::cost_of_operation(uint32_t what) const {
  const Operation& operation = operations_.at(what);
  const double stated =
      what < setting_.stated.size() ? setting_.stated[what] : -1;
  if (operation.type == OperationType::kCollective)
    return {DeviceModel::Engine::kNetwork, 0, uint64_t(std::max(stated, 0.0))};
  TaskWork amount = operation.work;
  amount.flops *= setting_.work;
  amount.bytes *= setting_.work;
  const TaskCost cost = cost_of(setting_.spec, amount);
  if (stated < 0) return cost;
  // A measured time contains the part that others may run beside.
  const uint64_t beside = std::min(cost.overhead, uint64_t(stated));
  const auto own = uint64_t((stated - double(beside)) * setting_.work);
  return {cost.engine, beside, own};
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
      timeline_.steps.push_back({now(), timeline_.tasks.size()});
      return;
  }
}

void Simulation::submit(const Entry& entry) {
  SimulatedStream& mine = stream_of(entry.stream);
  make_room(mine, entry.site);
  TaskTimes& times = timeline_.tasks.emplace_back();
  times.submitted = now();
  times.stream = entry.stream;
  times.site = entry.site;
  times.what = entry.what;
  if (entry.act == Act::kStreamWait) {
    times.after_stream = entry.other;
    times.after_number = stream_of(entry.other).number_before(entry.amount);
    times.what = kWaitForStream;
  }
  mine.tasks.push_back(timeline_.tasks.size() - 1);
  times.number = mine.tasks.size();
  settle(now());
  while (mine.done < mine.known && task_of(mine, mine.done + 1).ended <= now())
    ++mine.done;
  times.depth = uint32_t(mine.tasks.size() - mine.done);
}

void Simulation::make_room(SimulatedStream& stream, uint32_t site) {
  const uint64_t given = stream.tasks.size();
  if (given - stream.done < setting_.capacity) return;
  const uint64_t end = end_of(stream, given - setting_.capacity + 1);
  if (end <= now()) return;
  timeline_.waits.push_back({now(), end, uint32_t(kFullQueue), site});
  now_ = double(end);
}

void Simulation::wait(const Entry& entry) {
  SimulatedStream& other = stream_of(entry.other);
  const uint64_t begun = now();
  if (const uint64_t number = other.number_before(entry.amount)) {
    const uint64_t end =
        end_of(other, number) + uint64_t(setting_.spec.complete_ns);
    now_ = std::max(now_, double(end));
  }
  timeline_.waits.push_back({begun, now(), entry.what, entry.site});
}

void Simulation::settle(uint64_t limit) {
  hand_over();
  while (begin_one(limit)) {
  }
}

// The tasks that are waited for have been submitted, and they wait for such
// tasks only: one of them can always begin.
uint64_t Simulation::end_of(SimulatedStream& stream, uint64_t number) {
  hand_over();
  while (stream.known < number) begin_one(kEver);
  return task_of(stream, number).ended;
}

bool Simulation::begin_one(uint64_t limit) {
  DeviceModel* first = nullptr;
  uint64_t start = limit;
  for (auto& [_, device] : devices_) {
    const uint64_t next = device.next_start();
    if (next > start || (first && next == start)) continue;
    first = &device;
    start = next;
  }
  if (!first) return false;
  DeviceModel::Queue& queue = first->begin_next();
  for (auto& [_, stream] : streams_) {
    if (stream.queue != &queue) continue;
    for (const DeviceModel::Span& span : queue.begun) {
      TaskTimes& task = task_of(stream, span.number);
      if (!task.started) task.started = span.start;
      task.ended = span.end;
      --task.open;
    }
    queue.begun.clear();
    if (resolve(stream)) hand_over();
  }
  return true;
}

// Gives devices what they may have: what comes after a wait only once it is
// known when the wait ends.
void Simulation::hand_over() {
  for (bool again = true; again;) {
    again = false;
    for (auto& [_, stream] : streams_) again = hand_over(stream) || again;
  }
}

bool Simulation::hand_over(SimulatedStream& stream) {
  const size_t before = stream.handed;
  for (; stream.handed < stream.tasks.size(); ++stream.handed) {
    TaskTimes& task = task_of(stream, stream.handed + 1);
    if (task.what == kWaitForStream) {
      if (task.after_number) {
        const SimulatedStream& other = streams_.at(task.after_stream);
        if (other.known < task.after_number) break;
        stream.gate =
            std::max(stream.gate, task_of(other, task.after_number).ended);
      }
      task.started = task.ended = std::max(stream.gate, task.submitted);
      continue;
    }
    const uint64_t ready = std::max(
        task.submitted + uint64_t(setting_.spec.launch_ns), stream.gate);
    const auto give = [&](uint32_t what) {
      const TaskCost cost = cost_of_operation(what);
      stream.device.submit(*stream.queue, {task.number, cost.engine, ready,
                                           cost.overhead, cost.work});
      ++task.open;
    };
    const Operation& operation = operations_.at(task.what);
    if (operation.type == OperationType::kReplay) {
      for (const uint32_t part : operation.parts) give(part);
    } else if (operation.type != OperationType::kNone) {
      give(task.what);
    }
    if (!task.open) task.started = task.ended = task.submitted;
  }
  const bool known = resolve(stream);
  return stream.handed != before || known;
}

// What takes no time ends with the task before it.
bool Simulation::resolve(SimulatedStream& stream) {
  const size_t before = stream.known;
  for (; stream.known < stream.handed; ++stream.known) {
    TaskTimes& task = task_of(stream, stream.known + 1);
    if (task.open) break;
    task.ended = std::max(task.ended, stream.last_end);
    task.started =
        std::min(std::max(task.started, stream.last_end), task.ended);
    stream.last_end = task.ended;
  }
  return stream.known != before;
}

uint64_t Simulation::end_of(uint32_t index, uint64_t number) {
  SimulatedStream& stream = stream_of(index);
  number = std::min<uint64_t>(number, stream.tasks.size());
  return number ? end_of(stream, number) : 0;
}

Timeline Simulation::finish() {
  settle(kEver);
  uint64_t latest = 0;
  size_t i = 0;
  for (StepTimes& step : timeline_.steps) {
    for (; i < step.device; ++i)
      latest = std::max(latest, timeline_.tasks[i].ended);
    step.device = i ? latest : step.host;
  }
  return std::move(timeline_);
}

}  // namespace npu::plan
