#include "csrc/taskqueue/device_queue.h"

#include <stdexcept>
#include <string>

#include "csrc/driver/registry.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

npu_queue create(int device, int priority, const npu_reports* reports) {
  npu_queue queue = driver().queue_create(device, priority, reports);
  if (queue) return queue;
  throw std::runtime_error(
      "npu:" + std::to_string(device) + ": the driver '" + driver().name +
      "' has no further queue for a stream; use fewer streams");
}

// Has the type of npu_driver::launch, but its `queue` is the InFlight.
int run_in_flight(npu_queue queue, const npu_kernel* kernel,
                  const uint64_t* words, npu_failure* failure) {
  if (kernel->flags & NPU_KERNEL_ON_HOST)
    return kernel->run(kernel, words, failure);
  return reinterpret_cast<InFlight*>(queue)->run(kernel, words, *failure);
}

}  // namespace

DeviceQueue::DeviceQueue(Stream& stream) {
  if (driver().launch) {
    run_ = driver().launch;
    handle_ = create(stream.device(), stream.priority(), nullptr);
    return;
  }
  in_flight_ = std::make_unique<InFlight>(stream);
  in_flight_->opened(
      create(stream.device(), stream.priority(), &in_flight_->reports()));
  run_ = run_in_flight;
  handle_ = reinterpret_cast<npu_queue>(in_flight_.get());
}

DeviceQueue::~DeviceQueue() {
  driver().queue_destroy(in_flight_ ? in_flight_->queue() : handle_);
}

}  // namespace npu
