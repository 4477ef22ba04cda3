#include "csrc/engine/stillness.h"

#include <chrono>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/work_names.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// How long the first attempt lasts: long enough for launchers to wake, and
// short where streams hold each other up.
constexpr uint64_t kAttemptNs = 20'000'000;

const npu_kernel kHalt{nullptr, kHaltName, nullptr, 0};

}  // namespace

class Stillness::Halt final : public Program {
 public:
  int run(Stream&, const DeviceQueue&, const uint64_t*, npu_failure&) override {
    stand();
    return NPU_OK;
  }
  // The launcher of a failed stream calls this. If an observer refused the
  // task, the thread that asked for the stillness calls it, and that thread
  // must not stand still.
  void dropped(Stream&, const uint64_t*) override {
    if (std::this_thread::get_id() != asker_) return stand();
    std::lock_guard lock(mutex_);
    ++standing_;
  }

  // False: the queue is full.
  bool submit(Stream& stream) {
    static const PublishedNames names{kHalt.name};
    Submission s;
    switch (stream.try_begin(1, s, {})) {
      case Stream::Opened::kFull:
        return false;
      case Stream::Opened::kFailed:
        return true;  // it runs nothing
      case Stream::Opened::kYes:
        break;
    }
    s.task->marks.kind = TaskKind::kProgram;
    s.task->kernel = &kHalt;
    s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(this));
    stream.commit(s);
    points_.push_back({&stream, s.position + 1});
    return true;
  }

  bool wait(uint64_t patience_ns) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(patience_ns),
                             [&] { return standing_ == points_.size(); });
  }

  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  std::vector<StreamPoint>& points() { return points_; }

 private:
  void stand() {
    std::unique_lock lock(mutex_);
    ++standing_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }

  const std::thread::id asker_ = std::this_thread::get_id();
  std::vector<StreamPoint> points_;  // only the asker uses them
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t standing_ = 0;
  bool released_ = false;
};

// Releases the launchers and keeps the halt until its tasks have ended: a
// stream may reach its task much later.
void Stillness::leave(std::unique_ptr<Halt> halt) {
  static auto* const left = new DeferredDelete<Halt>;
  halt->release();
  auto list = [own = std::move(halt->points())](auto& points) mutable {
    points = std::move(own);
  };
  left->after(std::move(list), std::move(halt));
}

std::unique_ptr<Stillness::Halt> Stillness::attempt(int device,
                                                    uint64_t patience_ns) {
  auto halt = std::make_unique<Halt>();
  bool submitted = true;
  const auto all = streams(device);
  halt->points().reserve(all.size());  // nothing may throw behind a commit
  try {
    for (Stream* stream : all)
      if (stream->mode() == StreamMode::kQueued && !stream->sink())
        submitted = submitted && halt->submit(*stream);
  } catch (...) {  // no thread for a stream: others stand in the halt by now
    leave(std::move(halt));
    throw;
  }
  if (submitted && halt->wait(patience_ns)) return halt;
  leave(std::move(halt));
  return nullptr;
}

// An attempt fails where a stream waits for a task behind another stream's
// halt, which a thread submitted meanwhile, or where a stream has much to do
// before its halt. Each attempt lasts twice as long as the one before; the work
// in front of a halt never grows, so one succeeds in the end.
Stillness::Stillness(int device, uint64_t patience_ns) {
  const uint64_t until = now_ns() + patience_ns;
  uint64_t patience = kAttemptNs;
  do {
    halt_ = attempt(device, patience);
    patience *= 2;
  } while (!halt_ && now_ns() < until);
}

Stillness::~Stillness() {
  if (halt_) leave(std::move(halt_));
}

}  // namespace npu
