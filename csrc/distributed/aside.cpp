#include "csrc/distributed/aside.h"

#include <stdexcept>
#include <thread>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr uint64_t kLookNs = 50'000'000;

void wait_for(const Point& point) {
  while (!point.stream->retired().reached(point.number))
    point.stream->retired().sleep(point.number, kLookNs);
  if (const auto error = error_before(*point.stream, point.number))
    throw std::runtime_error("it waited for what has failed: " +
                             error->message());
}

}  // namespace

void Aside::leave() {
  {
    std::lock_guard lock(mutex_);
    left_ = true;
    if (!started_) return;
  }
  future_.wait();
}

void Aside::start(const std::shared_ptr<Aside>& aside, std::vector<Point> after,
                  std::vector<Future> others, std::function<void()> work) {
  const auto run = [aside, after = std::move(after), others = std::move(others),
                    work = std::move(work)] {
    try {
      for (const Future& other : others) other.get();
      for (const Point& point : after) wait_for(point);
      const HostAccess access;
      work();
      aside->done_.set_value();
    } catch (...) {
      aside->done_.set_exception(std::current_exception());
    }
  };
  {
    std::lock_guard lock(aside->mutex_);
    aside->started_ = true;
    if (aside->left_) {
      aside->done_.set_exception(std::make_exception_ptr(
          std::runtime_error("what was queued before it has failed")));
      return;
    }
  }
  try {
    std::thread(run).detach();
  } catch (const std::exception&) {
    aside->done_.set_exception(std::make_exception_ptr(
        std::runtime_error("there is no thread for it")));
  }
}

}  // namespace npu
