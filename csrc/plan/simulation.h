// When a recorded program's tasks would start and end on a stated device, and
// its host go on.
//
// One clock is the host's: what it does takes the time that was recorded, and a
// wait takes until the device is done. Nothing sleeps, so the result depends on
// the recording and the device's numbers alone.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/plan/recording.h"

namespace npu::plan {

struct Setting {
  EmulatedSpec spec;
  double host = 1;         // how many times as fast
  double work = 1;         // how many times as much of each task
  uint64_t capacity = ~0;  // tasks that a stream's queue holds
  // By operation: ns that a task takes. Negative, or missing: what the spec
  // says.
  std::vector<double> stated;
};

// Times are ns since the beginning. Plain data, which Python reads in bulk.
struct TaskTimes {
  uint64_t submitted, started, ended;
  uint64_t number;  // in its stream, from 1
  uint32_t stream, what, site, depth;
  // Of a wait: the stream and number that it waits for; number 0: no wait.
  uint64_t after_number;
  uint32_t after_stream;
  uint32_t open;  // parts whose end is not known yet
};
static_assert(sizeof(TaskTimes) == 64);

struct WaitTimes {
  uint64_t begun, ended;
  uint32_t reason, site;
};
static_assert(sizeof(WaitTimes) == 24);

struct StepTimes {
  uint64_t host;  // the end of the host's part
  // The end of all tasks so far. Before finish(): the number of these tasks.
  uint64_t device;
};

struct Timeline {
  std::vector<TaskTimes> tasks;  // in the order of their submissions
  std::vector<WaitTimes> waits;
  std::vector<StepTimes> steps;
};

class Simulation {
 public:
  // The vectors may grow while it is fed.
  Simulation(const std::vector<PlanStream>& streams,
             const std::vector<Operation>& operations, Setting setting)
      : given_streams_(streams),
        operations_(operations),
        setting_(std::move(setting)) {}

  // What the program does next.
  void feed(const Entry& entry);
  // The host's clock, `host_ns` of its recorded work after the last entry.
  uint64_t now(uint64_t host_ns = 0) const {
    return uint64_t(now_ + double(host_ns) / setting_.host);
  }
  // When the stream's first `number` tasks end.
  uint64_t end_of(uint32_t stream, uint64_t number);
  // Lets the device do the rest.
  Timeline finish();

 private:
  // One stream: its tasks in order. The device has been handed the first
  // `handed` (those that need it), and the ends of the first `known` are known.
  struct SimulatedStream {
    DeviceModel& device;
    DeviceModel::Queue* queue;
    std::vector<size_t> tasks{};  // their places in the timeline
    size_t handed = 0, known = 0;
    size_t done = 0;    // of the known ones, those that the host can know of
    uint64_t gate = 0;  // tasks that are handed over later start no earlier
    uint64_t last_end = 0;  // of the known ones

    // The number of the task that `amount` others were submitted behind; 0:
    // none of this recording.
    uint64_t number_before(uint64_t amount) const {
      return tasks.size() > amount ? tasks.size() - amount : 0;
    }
  };

  SimulatedStream& stream_of(uint32_t index);
  TaskTimes& task_of(const SimulatedStream& stream, uint64_t number) {
    return timeline_.tasks[stream.tasks[number - 1]];
  }
  TaskCost cost_of_operation(uint32_t what) const;
  void submit(const Entry& entry);
  void wait(const Entry& entry);
  void make_room(SimulatedStream& stream, uint32_t site);
  // Begins what starts before the end of that task is known; returns the end.
  uint64_t end_of(SimulatedStream& stream, uint64_t number);
  // Begins what starts by `limit`.
  void settle(uint64_t limit);
  bool begin_one(uint64_t limit);
  void hand_over();
  bool hand_over(SimulatedStream& stream);
  bool resolve(SimulatedStream& stream);

  const std::vector<PlanStream>& given_streams_;
  const std::vector<Operation>& operations_;
  const Setting setting_;
  std::map<int, DeviceModel> devices_;
  std::map<uint32_t, SimulatedStream> streams_;  // by index
  double now_ = 0;
  Timeline timeline_;
};

}  // namespace npu::plan
