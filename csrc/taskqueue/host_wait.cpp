#include "csrc/taskqueue/host_wait.h"

#include "csrc/base/clock.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/host_wait_policy.h"
#include "csrc/taskqueue/observer.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr double kSpinNs = 20'000;
constexpr uint64_t kInterruptNs = 50'000'000;

HostWaitHooks hooks_{};
thread_local int sleep_at_once_ = 0;

// Holds the hooks' token, and gives it back however the wait ends.
class Released {
 public:
  Released() : token_(hooks_.release ? hooks_.release() : nullptr) {}
  ~Released() { reacquire(); }
  void reacquire() {
    if (token_) hooks_.reacquire(token_);
    token_ = nullptr;
  }

 private:
  void* token_;
};

void wait(Stream& stream, uint64_t number) {
  static const uint64_t spin_ticks = uint64_t(kSpinNs / ns_per_tick());
  if (stream.retired().spin(number, sleep_at_once_ ? 0 : spin_ticks)) return;
  for (;;) {
    {
      Released released;
      if (stream.retired().sleep(number, kInterruptNs)) return;
    }
    if (hooks_.check_interrupt) hooks_.check_interrupt();
  }
}

}  // namespace

void set_host_wait_hooks(const HostWaitHooks& hooks) { hooks_ = hooks; }

SleepAtOnce::SleepAtOnce() { ++sleep_at_once_; }
SleepAtOnce::~SleepAtOnce() { --sleep_at_once_; }

void host_wait(Stream& stream, uint64_t number, WaitReason reason) {
  if (!stream.retired().reached(number)) {
    const uint64_t start = now_ns();
    wait(stream, number);
    DeviceBlock& block = segment().devices[stream.device()];
    block.waits[int(reason)].fetch_add(1, std::memory_order_relaxed);
    block.wait_ns[int(reason)].fetch_add(now_ns() - start,
                                         std::memory_order_relaxed);
  }
  if (Observer* o = observer()) o->host_waited(stream, number);
}

void host_wait_for_space(Stream& stream, uint64_t number) {
  wait(stream, number);
}

}  // namespace npu
