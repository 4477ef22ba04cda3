// Work that found all streams of its kind with work of others. On one of those
// it could wait for ever: for a message behind one that the other rank expects
// later. So it runs on a thread of its own, and the stream's task waits for it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/distributed/comm_streams.h"

namespace npu {

class Aside {
 public:
  using Future = std::shared_future<void>;

  Aside() : future_(done_.get_future()) {}
  Aside(const Aside&) = delete;

  // Starts `work` once the points and the others have been reached. Where one
  // of them has failed, or there is no thread, it fails instead.
  static void start(const std::shared_ptr<Aside>& aside,
                    std::vector<Point> after, std::vector<Future> others,
                    std::function<void()> work);

  const Future& future() const { return future_; }
  // Called when its task is gone, run or not, and its memory may be: returns
  // once the work has ended, and prevents what has not been started.
  void leave();

 private:
  std::mutex mutex_;  // guards the next two
  bool started_ = false, left_ = false;
  std::promise<void> done_;
  const Future future_;
};

}  // namespace npu
