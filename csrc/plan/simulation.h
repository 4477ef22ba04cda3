// When a recorded program's tasks would start and end on a stated device, and
// its host go on.
//
// One clock is the host's: what it does takes the time that was recorded, and a
// wait takes until the device is done. Nothing sleeps, so the result depends on
// the recording and the sheet alone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "csrc/driver/emulated/cost.h"
#include "csrc/driver/emulated/model.h"
#include "csrc/plan/program.h"

namespace npu::plan {

struct Setting {
  EmulatedSpec spec;
  double host = 1;         // how many times as fast
  double work = 1;         // how many times as much of each task
  uint64_t capacity = ~0;  // tasks that a stream's queue holds
  // By work: ns that a task takes. Negative, or missing: what the spec says.
  std::vector<double> stated;
};

// Times are ns since the beginning. Plain data, which Python reads in bulk.
struct TaskTimes {
  uint64_t submitted, started, ended;
  uint64_t number;     // in its stream, from 1
  uint64_t allocated;  // bytes of the device, as it was submitted
  uint32_t stream, what, site, depth;
  // Of a wait: the stream and number that it waits for; number 0: no wait.
  uint64_t after_number;
  uint32_t after_stream;
  uint32_t pad;
};
static_assert(sizeof(TaskTimes) == 72);

struct WaitTimes {
  uint64_t begun, ended;
  uint32_t reason, site;
};
static_assert(sizeof(WaitTimes) == 24);

struct StepTimes {
  uint64_t host, device;  // ends of the host's part, and of all its tasks
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
             const std::vector<Work>& works, Setting setting);
  ~Simulation();

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
  struct Lane;
  struct Task;
  struct Part {
    DeviceModel::Engine engine;
    uint64_t overhead, work;
  };

  Lane& lane(uint32_t stream);
  const std::vector<Part>& parts_of(uint32_t what);
  Part part_of(uint32_t what) const;
  void submit(const Entry& entry);
  void wait(const Entry& entry);
  void make_room(Lane& lane, uint32_t site);
  // Begins what starts by `limit`.
  void settle(uint64_t limit);
  // Begins what starts before the end of that task is known; returns the end.
  uint64_t end_of(Lane& lane, uint64_t number);
  bool begin_one(uint64_t limit);
  void move();
  bool move(Lane& lane);
  bool resolve(Lane& lane);

  const std::vector<PlanStream>& streams_;
  const std::vector<Work>& works_;
  const Setting setting_;
  std::map<int, std::unique_ptr<DeviceModel>> devices_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by stream
  std::vector<std::vector<Part>> parts_;      // by work; empty: not asked for
  std::deque<Task> tasks_;
  double now_ = 0;
  std::vector<size_t> step_tasks_;  // tasks submitted by the end of each step
  Timeline timeline_;
};

}  // namespace npu::plan
