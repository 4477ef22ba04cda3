// What a profiler in this process learns of each task: which operator launched
// it, and when it ran.
//
// It is off until start_profile() (engine/profiling.h). From then on the gate
// word of each stream sends launches along the slow path, and each task leaves
// a record; nobody waits.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace npu {

// What a thread can be inside of; each scope has a number of the profiler's.
enum class Scope { kOperator, kRange };

// The calling thread enters a scope, and leaves the innermost one of its kind.
void enter_scope(Scope kind, uint64_t id);
void leave_scope(Scope kind);
// A profile begins: scopes that are open now belong to an earlier one.
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

// The profile of one stream. It is kept once made.
class StreamProfile {
 public:
  // `capacity`: the tasks that the stream's ring holds.
  StreamProfile(int device, int64_t stream, uint64_t capacity);

  // Called by the submitting thread, between the claim and the publication.
  void launched(uint64_t position, uint64_t begun);

  // The task that runs; `launch` is null where it was not launched in this
  // profile.
  struct Running {
    const ProfiledLaunch* launch = nullptr;
    bool in_parts = false;
    uint64_t last_end = 0;  // of its parts
  };

  // Called by the thread that executes the stream's tasks. starts(): a task
  // starts; returns the one around it. part_ran(): a part of it has run; the
  // parts then stand for the task. ran(): the task has run. resume(): the task
  // around it goes on.
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
  // The launch of position p is in slot p % capacity, as in the ring. The
  // task's publication makes what the submitter wrote visible to the launcher.
  std::vector<ProfiledLaunch> launches_;
  Running running_;  // belongs to the executing thread

  std::mutex mutex_;  // guards runs_
  std::vector<ProfiledRun> runs_;
};

}  // namespace npu
