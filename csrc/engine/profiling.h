// What a profiler in this process learns of each task: which operator launched
// it, and when it ran. While there is a profile, each launch takes the slow
// path and leaves a record; nobody waits.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;

// What a thread can be inside of; each scope has a number of the profiler's.
enum class Scope { kOperator, kRange };

// The calling thread enters a scope, and leaves the innermost one of its kind.
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

// Lives while an operator that has waited for the stream runs on the calling
// thread.
class RunsOnCaller {
 public:
  RunsOnCaller(const Stream& stream, const char* name);
  ~RunsOnCaller();
  RunsOnCaller(const RunsOnCaller&) = delete;

 private:
  const HostAccess access_;
  const Stream& stream_;
  const char* const name_;
  const uint64_t started_;  // 0: there is no profile
};

// Profiles all streams from now on. Any thread; one profile at a time.
void start_profile();
// Ends the profile and returns the tasks that were launched during it and have
// run. Tasks under way are not among them: a caller that wants them
// synchronizes before.
std::vector<ProfiledRun> stop_profile();

}  // namespace npu
