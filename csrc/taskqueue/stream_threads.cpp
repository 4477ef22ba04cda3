// The launcher thread of a stream: its beginning and its end.
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "csrc/base/blocked_signals.h"
#include "csrc/observe/observer.h"
#include "csrc/placement/policy.h"
#include "csrc/taskqueue/launcher.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

constexpr int kUrgentNice = -5;

}  // namespace

void Stream::start() {
  // A task of this stream submits to it: the launcher that runs that task does
  // not end before it has run this one, even where it has been told to end.
  if (stream_of_this_thread() == this) return;
  std::lock_guard lock(launcher_mutex_);
  if (!(gate_.load(std::memory_order_relaxed) & kNotStarted)) return;
  if (observed(Observer::kRuns)) return;
  // Made on this thread, which can be told that there is no memory.
  policy();
  if (InFlight* const in_flight = queue_.in_flight())
    in_flight->flights.resize(capacity());
  try {
    const BlockedSignals blocked;
    launcher_ = std::thread([this, n = launchers_] { launch(n); });
    ++launchers_;
  } catch (const std::system_error& error) {
    throw std::runtime_error(
        name() +
        ": no thread can be had to launch its work: " + error.code().message() +
        ". A limit of threads (ulimit -u, pids.max of the container) or of "
        "memory is reached; nothing was queued, and the stream can be used "
        "once there is room for a thread");
  }
  gate_.fetch_and(~uint32_t(kNotStarted), std::memory_order_relaxed);
}

// A submission that began while there was a launcher may find the launcher gone
// when it has published: stop() cannot see a submission before its claim.
void Stream::rouse() noexcept {
  if (parking_.wake() || idle()) return;
  try {
    start();
  } catch (const std::exception& error) {
    // The task stays queued; the next task that starts a launcher starts this
    // one, too.
    fail({NPU_ERROR, device_, id_, tail(), "start", error.what(), {}, ""});
  }
}

// What a launcher thread runs. One that was started while its predecessor is
// still ending waits for that here.
void Stream::launch(uint64_t number) {
  char name[16];  // the most that the system takes
  snprintf(name, sizeof name, "npu%d/s%lld", device_, (long long)id_);
  pthread_setname_np(pthread_self(), name);
  // Lets an urgent stream run ahead of everything in the process, not only of
  // normal streams (launcher_placement.h). Has no effect without CAP_SYS_NICE.
  if (priority_ < 0) setpriority(PRIO_PROCESS, id_t(gettid()), kUrgentNice);
  // Launchers run in turn, whichever thread the system runs first: stop() waits
  // for the earlier one.
  while (!ended_.sleep(number, 0)) {
  }
  parking_.enter();
  Launcher(*this, number).run();
  ended_.advance_to(number + 1);
}

bool Stream::stop() {
  bool stopped = false;
  for (;;) {
    std::thread ending;
    {
      std::lock_guard lock(launcher_mutex_);
      if (!launcher_.joinable()) return stopped;
      // The handle is taken away, so what is submitted from here on starts
      // another launcher, which begins when this one has ended. The join is
      // outside of the mutex: the task that this launcher runs may be waiting
      // for just such a submission.
      ending = std::move(launcher_);
      gate_.fetch_or(kNotStarted, std::memory_order_relaxed);
      // Release: pairs with the acquire in ends().
      stopping_.store(launchers_, std::memory_order_release);
    }
    parking_.wake_if_parked();
    ending.join();
    stopped = true;
  }
}

void Stream::abandon_after_fork() {
  // The launcher does not exist in this process; its handle must not be
  // joined or destroyed.
  new (&launcher_mutex_) std::mutex;
  new (&error_mutex_) std::mutex;
  new (&launcher_) std::thread;
  gate_.store(kForked, std::memory_order_relaxed);
}

}  // namespace npu
