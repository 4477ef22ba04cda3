// Keeps objects that nobody wants any more but that queued tasks may still use.
#pragma once

#include <concepts>
#include <memory>
#include <mutex>
#include <new>
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
  // Destroys the object in a collect() after the last of the points that `list`
  // adds to a vector. Where there is no memory to note the points, the object
  // is never destroyed: queued tasks may use it.
  template <std::invocable<std::vector<StreamPoint>&> List>
  void keep(List list, std::unique_ptr<T> object) noexcept {
    try {
      std::vector<StreamPoint> points;
      list(points);
      std::lock_guard lock(mutex_);
      Kept& kept = kept_.emplace_back();
      kept.object = std::move(object);
      kept.points = std::move(points);
    } catch (const std::bad_alloc&) {
      (void)object.release();
    }
  }

  // Like keep(), and collects, but only when the number of kept objects has
  // doubled, so that a call's mean cost does not grow with them.
  template <std::invocable<std::vector<StreamPoint>&> List>
  void after(List list, std::unique_ptr<T> object) noexcept {
    keep(std::move(list), std::move(object));
    if (full()) collect();
  }
  void after(StreamPoint point, std::unique_ptr<T> object) noexcept {
    after([&](auto& points) { points.push_back(point); }, std::move(object));
  }

  // Destroys every object whose points are over, outside the lock, and returns
  // whether there was any. Without memory it leaves them to the next time.
  bool collect() noexcept {
    std::vector<Kept> gone;
    std::lock_guard lock(mutex_);
    try {
      gone.reserve(kept_.size());
    } catch (const std::bad_alloc&) {
      return false;
    }
    std::erase_if(kept_, [&](Kept& kept) {
      for (const StreamPoint& p : kept.points)
        if (!p.over()) return false;
      gone.push_back(std::move(kept));
      return true;
    });
    collect_at_ = 2 * kept_.size() + kFew;
    return !gone.empty();
  }

 private:
  struct Kept {
    std::unique_ptr<T> object;
    std::vector<StreamPoint> points;
  };
  static constexpr size_t kFew = 64;

  bool full() {
    std::lock_guard lock(mutex_);
    return kept_.size() >= collect_at_;
  }

  std::mutex mutex_;
  std::vector<Kept> kept_;
  size_t collect_at_ = kFew;
};

}  // namespace npu
