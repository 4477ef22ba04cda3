// Writes down what a program does: an observer that adds nothing to the host
// times that it notes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/observe/observer.h"
#include "csrc/plan/recording.h"
#include "csrc/plan/simulation.h"

namespace npu::plan {

// Host times are CPU times of the threads that launch. They do not contain what
// other processes take, the host's waits, or the recorder itself. Threads are
// taken to run in turns, as they do under the GIL.
//
// Installed once and never destroyed: another thread may be inside a call.
//
// The GIL is never taken under the mutex: its holder may wait for that.
class Recorder final : public Observer {
 public:
  // The program sees the time of this device: now() and ended().
  explicit Recorder(const Setting& setting);

  bool submitted(Stream&, uint64_t position, const Task&) override;
  void replays(Stream&, const KernelCall*, size_t, Captured) override;
  void host_waits(Stream&, uint64_t number, WaitReason) override;
  bool host_waited(Stream&, uint64_t number) override;
  void allocated(Stream&, const void*, size_t) override;
  void freed(Stream&, const void*, size_t, FreedTo) override;

  // The calling thread has done nothing for so long.
  void pass(uint64_t ns) { note(Act::kPass, ns); }
  // The program's step has ended.
  void step() { note(Act::kStep, 0); }
  // The next task that the calling thread launches is this collective.
  void collective(std::string kind, uint64_t bytes, std::vector<int64_t> ranks);

  // The time that the program sees, in ns: the device's clock, and the work of
  // the calling thread since. Never less than any thread has seen before.
  uint64_t now();
  // When the stream's first `number` tasks end, on that clock.
  uint64_t ended(Stream&, uint64_t number);

  // Entries so far. From kMost on none is added.
  size_t size();
  // Ends the recording.
  Recording take();

 private:
  static constexpr size_t kMost = 4'000'000;

  struct Thread;
  struct Known {
    uint32_t index;
    uint64_t begin;   // the position of the first task that was seen
    uint64_t number;  // of tasks that were seen
    // How many came after the task of that position. What came before the
    // first that was seen has ended.
    uint64_t behind(uint64_t position) const {
      const uint64_t end = begin + number;
      return position < end ? end - position : 0;
    }
  };
  struct Memory {
    uint64_t bytes = 0, most = 0;
  };

  // What is known of the calling thread in this recording.
  Thread& here();
  // The CPU time from the thread's last entry to `now`.
  uint64_t host_ns(const Thread& thread, uint64_t now) const;
  // Adds the entry that fill(entry) describes, under the mutex.
  template <typename Fill>
  void add(Thread& thread, uint64_t host_ns, Fill fill);
  void note(Act act, uint64_t amount);
  Known& known(Stream& stream, uint64_t position);
  uint32_t operation_of(Thread& thread, const Task& task);
  uint32_t index_of(std::string key, Operation operation);
  uint32_t kernel(const npu_kernel& kernel, const uint64_t* words);

  const uint64_t read_ns_;  // what reading a thread's clock takes
  std::mutex mutex_;        // guards what follows
  Recording recording_;
  std::map<const Stream*, Known> streams_;
  std::unordered_map<std::string, uint32_t> operations_;  // by key
  std::map<int, Memory> memory_;
  uint32_t threads_ = 0;
  uint64_t latest_ = 0;              // that now() has returned
  std::optional<Simulation> clock_;  // none: the recording has ended
};

}  // namespace npu::plan
