// How a capture ends whose capture_end() does not come.
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/graph/lifetime.h"

namespace npu {
namespace {

struct AtThreadEnd {
  ~AtThreadEnd() { Capture::get().thread_ends(); }
};

}  // namespace

void Capture::watch_thread() { static thread_local AtThreadEnd at_thread_end; }

std::unique_ptr<Body> Capture::give_up() {
  failed_by(CaptureFailure::kAbandoned);
  return stop();
}

// In a forked process the mutex may be locked by a thread that is not there.
std::unique_ptr<Body> Capture::abandon(const void* owner) {
  if (!under_way() || in_bad_fork()) return nullptr;
  std::lock_guard lock(mutex_);
  return body_ && owner_ == owner ? give_up() : nullptr;
}

std::unique_ptr<Body> Capture::abandon() {
  if (!under_way() || in_bad_fork()) return nullptr;
  std::lock_guard lock(mutex_);
  return body_ ? give_up() : nullptr;
}

void Capture::thread_ends() noexcept {
  if (!under_way() || in_bad_fork()) return;
  std::unique_ptr<Body> left;
  {
    std::lock_guard lock(mutex_);
    if (!body_ || mode_ == CaptureMode::kRelaxed ||
        std::this_thread::get_id() != thread_)
      return;
    left = give_up();
  }
  destroy_elsewhere(std::move(left));
}

bool Capture::is_of(const void* owner) {
  if (!under_way() || in_bad_fork()) return false;
  std::lock_guard lock(mutex_);
  return body_ && owner_ == owner;
}

}  // namespace npu
