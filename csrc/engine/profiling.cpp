#include "csrc/engine/profiling.h"

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

RunsOnCaller::RunsOnCaller(const Stream& stream, const char* name)
    : profile_(stream.profile()),
      name_(name),
      started_(profile_ ? ticks() : 0) {}

RunsOnCaller::~RunsOnCaller() {
  if (profile_) profile_->ran_on_caller(name_, started_, ticks());
}

// In a forked child there is nothing to profile, and a launcher of the parent
// may have held a mutex when it was forked.
void start_profile() {
  if (in_bad_fork()) return;
  forget_scopes();
  for (Stream* s : all_streams())
    if (StreamProfile* profile = s->kept_profile()) profile->clear();
  set_profiled(true);
}

std::vector<ProfiledRun> stop_profile() {
  if (in_bad_fork()) return {};
  set_profiled(false);
  std::vector<ProfiledRun> runs;
  for (Stream* s : all_streams())
    if (StreamProfile* profile = s->kept_profile()) profile->take(runs);
  return runs;
}

}  // namespace npu
