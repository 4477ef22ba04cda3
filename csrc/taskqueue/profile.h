// What a profiler in this process learns of each task: which operator launched
// it, and when it ran.
//
// Off until start_profile(). Then each launch takes the slow path that its
// stream's gate word opens, and each task leaves a record; nobody waits.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace npu {

class Stream;

// What a thread can be inside of, each with the profiler's own number.
enum class Scope { kOperator, kRange };

// The calling thread goes into, and out of, the innermost scope of its kind.
void enter_scope(Scope kind, uint64_t id);
void leave_scope(Scope kind);

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
  explicit StreamProfile(const Stream& stream);

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

  const Stream& stream_;
  // Of position p in slot p % capacity, as the ring: what the submitter wrote
  // is visible to the launcher by the task's publication.
  std::vector<ProfiledLaunch> launches_;
  Running running_;  // the executing thread's

  std::mutex mutex_;  // guards runs_
  std::vector<ProfiledRun> runs_;
};

// From its construction to its destruction an operator that has waited for the
// stream runs on the calling thread.
class RunsOnCaller {
 public:
  RunsOnCaller(const Stream& stream, const char* name);
  ~RunsOnCaller();
  RunsOnCaller(const RunsOnCaller&) = delete;

 private:
  StreamProfile* const profile_;
  const char* const name_;
  const uint64_t started_;
};

// From now on, on all streams. Any thread; one profile at a time.
void start_profile();
// What has run since, of what was launched since. Tasks under way are not in
// it: whoever wants them synchronizes before.
std::vector<ProfiledRun> stop_profile();

}  // namespace npu
