// Keeps objects that nobody wants any more but that queued tasks may still use.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/taskqueue/stream.h"

namespace npu {

// A point in a stream: it is over once `number` of the stream's tasks have
// retired.
struct StreamPoint {
  Stream* stream;
  uint64_t number;

  bool over() const { return stream->retired().reached(number); }
};

// Keeps objects until their points are over. Any thread; never waits for a
// stream. Its owners never destroy it: threads outlive static destruction.
template <typename T>
class DeferredDelete {
 public:
  // Destroys the object some time after the last of the points. Collects only
  // when the number of kept objects has doubled, so that a call's mean cost
  // does not grow with them.
  void after(std::vector<StreamPoint> points, std::unique_ptr<T> object) {
    bool full;
    {
      std::lock_guard lock(mutex_);
      kept_.push_back({std::move(object), std::move(points)});
      full = kept_.size() >= collect_at_;
    }
    if (full) collect();
  }

  // Destroys every object whose points are over, outside the lock.
  void collect() {
    std::vector<Kept> gone;
    std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](Kept& kept) {
      for (const StreamPoint& p : kept.points)
        if (!p.over()) return false;
      gone.push_back(std::move(kept));
      return true;
    });
    collect_at_ = 2 * kept_.size() + kFew;
  }

 private:
  struct Kept {
    std::unique_ptr<T> object;
    std::vector<StreamPoint> points;
  };
  static constexpr size_t kFew = 64;

  std::mutex mutex_;
  std::vector<Kept> kept_;
  size_t collect_at_ = kFew;
};

}  // namespace npu
