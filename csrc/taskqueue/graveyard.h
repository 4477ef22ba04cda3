// What is no longer wanted while queued tasks may still use it.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/taskqueue/stream.h"

namespace npu {

// A place in a stream: over once `number` of its tasks have retired.
struct StreamPoint {
  Stream* stream;
  uint64_t number;

  bool over() const { return stream->retired().reached(number); }
};

// Keeps objects until their points are over. Any thread; never waits for a
// stream. Owners never destroy theirs: threads outlive static destruction.
template <typename T>
class Graveyard {
 public:
  // Collects now and then, so that a burial costs the same however many lie
  // here.
  void bury(std::unique_ptr<T> dead, std::vector<StreamPoint> points) {
    bool full;
    {
      std::lock_guard lock(mutex_);
      graves_.push_back({std::move(dead), std::move(points)});
      full = graves_.size() >= collect_at_;
    }
    if (full) collect();
  }

  // Destroys what may be destroyed by now, outside the lock.
  void collect() {
    std::vector<Grave> gone;
    std::lock_guard lock(mutex_);
    std::erase_if(graves_, [&](Grave& grave) {
      for (const StreamPoint& p : grave.points)
        if (!p.over()) return false;
      gone.push_back(std::move(grave));
      return true;
    });
    collect_at_ = 2 * graves_.size() + kFew;
  }

 private:
  struct Grave {
    std::unique_ptr<T> dead;
    std::vector<StreamPoint> points;
  };
  static constexpr size_t kFew = 64;

  std::mutex mutex_;
  std::vector<Grave> graves_;
  size_t collect_at_ = kFew;
};

}  // namespace npu
