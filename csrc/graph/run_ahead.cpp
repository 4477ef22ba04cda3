#include "csrc/graph/run_ahead.h"

#include "csrc/graph/body.h"

namespace npu {

RunAhead::RunAhead(InFlight* in_flight)
    : in_flight_(in_flight), first_(in_flight ? in_flight->started() + 1 : 0) {}

int RunAhead::start(const Node& node, npu_failure& failure) {
  const npu_kernel* const kernel = node.call.kernel;
  const uint64_t* const words = node.call.words.data();
  const bool on_host = kernel->flags & NPU_KERNEL_ON_HOST;
  if (on_host) {
    if (const int code = finish(failure)) return code;
  }
  failed_ = &node;
  if (on_host) return kernel->run(kernel, words, &failure);
  int code;
  while ((code = in_flight_->start(kernel, words, failure)) == NPU_BUSY) {
    if (!in_flight_->wait_for_room()) return finish(failure);
  }
  if (code == NPU_OK) {
    started_.push_back(&node);
    return NPU_OK;
  }
  // This failure counts only where everything before it has ended without one.
  npu_failure of_another;
  of_another.text[0] = 0;
  if (const int earlier = finish(of_another)) {
    failure = of_another;
    return earlier;
  }
  failed_ = &node;
  return code;
}

int RunAhead::finish(npu_failure& failure) {
  if (!in_flight_) return NPU_OK;
  uint64_t number;
  const int code = in_flight_->finish(number, failure);
  if (code != NPU_OK) failed_ = started_[number - first_];
  return code;
}

}  // namespace npu
