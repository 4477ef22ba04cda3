// The launcher thread of a stream: its beginning and its end.
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "csrc/base/blocked_signals.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/launcher.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

constexpr int kUrgentNice = -5;

}  // namespace

void Stream::start() {
  // A task's own submission to its stream: the launcher that runs the task does
  // not end before it has run this one, even where it is to end.
  if (stream_of_this_thread() == this) return;
  std::lock_guard lock(launcher_mutex_);
  if (!(gate_.load(std::memory_order_relaxed) & kNotStarted)) return;
  if (Observer* o = observer(); o && o->runs_tasks()) return;
  try {
    const BlockedSignals blocked;
    launcher_ = std::thread([this, n = launchers_] { launch(n); });
    ++launchers_;
  } catch (const std::system_error& error) {
    throw std::runtime_error(
        "npu:" + std::to_string(device_) + " stream " + std::to_string(id_) +
        ": no thread can be had to launch its work: " + error.code().message() +
        ". A limit of threads (ulimit -u, pids.max of the container) or of "
        "memory is reached; nothing was queued, and the stream can be used "
        "once there is room for a thread");
  }
  gate_.fetch_and(~uint32_t(kNotStarted), std::memory_order_relaxed);
}

// A submission that began while there was a launcher may find it gone when it
// has published: stop() cannot see it before the claim.
void Stream::rouse() noexcept {
  if (parking_.wake() || idle()) return;
  try {
    start();
  } catch (const std::exception& error) {
    // It stays queued: the next task's start() is its start, too.
    fail({NPU_ERROR, device_, id_, tail(), "start", error.what(), {}, ""});
  }
}

// A launcher thread. One that was started while its predecessor is still ending
// waits for it here.
void Stream::launch(uint64_t number) {
  const std::string name =
      "npu" + std::to_string(device_) + "/s" + std::to_string(id_);
  pthread_setname_np(pthread_self(), name.c_str());
  // So that an urgent stream runs ahead of everything in the process, not of
  // normal streams only (urgency.h). Needs CAP_SYS_NICE, else no effect.
  if (priority_ < 0) setpriority(PRIO_PROCESS, id_t(gettid()), kUrgentNice);
  // In turn, whichever thread the system runs first: who stops this stream
  // waits for the earlier one.
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
      // Taken away: what is submitted from here on starts another launcher,
      // which begins when this one has ended. Nobody waits for it with the
      // mutex held: the task that it runs may be waiting for that very
      // submission.
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
