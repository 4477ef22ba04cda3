// Profiling all streams of the process (observe/profile.h).
#pragma once

#include <vector>

#include "csrc/observe/profile.h"

namespace npu {

class Stream;

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
