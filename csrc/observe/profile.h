// What a profiler in this process learns of each task: which operator launched
// it, and when it ran.
//
// Off until start_profile() (engine/profiling.h). Then each launch takes the
// slow path that its stream's gate word opens, and each task leaves a record;
// nobody waits.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace npu {

// What a thread can be inside of, each with the profiler's own number.
enum class Scope { kOperator, kRange };

// The calling thread goes into, and out of, the innermost scope of its kind.
void enter_scope(Scope kind, uint64_t id);
void leave_scope(Scope kind);
// A profile begins: scopes that are open are an earlier one's.
void forget_scopes();

// Times are ticks.
struct ProfiledLaunch {
  uint64_t position;  // in its stream
  uint64_t begun, ended;
  uint64_t op, range;  // the innermost scopes; 0: none
  int32_t thread;      // 0: not a launch, the operator ran on its caller
};

struct ProfiledRun {
  ProfiledLaunch launch;
  uint64_t started, ended;
  const char* name;  // lives as long as the process
  int device;
  int64_t stream;
};

// One stream's. Kept once made.
class StreamProfile {
 public:
  // Of a stream whose ring holds `capacity` tasks.
  StreamProfile(int device, int64_t stream, uint64_t capacity);

  // Submitting thread, between the claim and the publication.
  void launched(uint64_t position, uint64_t begun);

  // The task that runs. Not launched in this profile: null.
  struct Running {
    const ProfiledLaunch* launch = nullptr;
    bool in_parts = false;
  };

  // The thread that executes the stream's tasks: a task starts; a part of it
  // has run, which then stands for it; the task has run. Where it started
  // within another, that one goes on.
  Running starts(uint64_t position);
  void resume(Running outer) { running_ = outer; }
  void part_ran(const char* name, uint64_t started, uint64_t ended);
  void ran(const char* name, uint64_t started, uint64_t ended);

  // Any thread.
  void ran_on_caller(const char* name, uint64_t started, uint64_t ended);

  void clear();
  void take(std::vector<ProfiledRun>& into);

 private:
  void add(const ProfiledLaunch& launch, const char* name, uint64_t started,
           uint64_t ended);

  const int device_;
  const int64_t stream_;
  // Of position p in slot p % capacity, as the ring: what the submitter wrote
  // is visible to the launcher by the task's publication.
  std::vector<ProfiledLaunch> launches_;
  Running running_;  // the executing thread's

  std::mutex mutex_;  // guards runs_
  std::vector<ProfiledRun> runs_;
};

}  // namespace npu
