// Profiles all streams of the process (observe/profile.h).
#pragma once

#include <vector>

#include "csrc/driver/host_access.h"
#include "csrc/observe/profile.h"

namespace npu {

class Stream;

// Lives while an operator that has waited for the stream runs on the calling
// thread.
class RunsOnCaller {
 public:
  RunsOnCaller(const Stream& stream, const char* name);
  ~RunsOnCaller();
  RunsOnCaller(const RunsOnCaller&) = delete;

 private:
  const HostAccess access_;
  StreamProfile* const profile_;
  const char* const name_;
  const uint64_t started_;
};

// Profiles all streams from now on. Any thread; one profile at a time.
void start_profile();
// Ends the profile and returns the tasks that were launched during it and have
// run. Tasks under way are not among them: a caller that wants them
// synchronizes before.
std::vector<ProfiledRun> stop_profile();

}  // namespace npu
