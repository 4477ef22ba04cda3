#include "csrc/graph/run_ahead.h"

#include "csrc/graph/body.h"

namespace npu {

RunAhead::RunAhead(InFlight* in_flight)
    : in_flight_(in_flight), first_(in_flight ? in_flight->started() + 1 : 0) {}

int RunAhead::start(const Node& node, npu_failure& failure) {
  const npu_kernel* const kernel = node.call.kernel;
  const uint64_t* const words = node.call.words.data();
  if (kernel->flags & NPU_KERNEL_ON_HOST) {
    if (const int code = finish(failure)) return code;
    failed_ = &node;
    return kernel->run(kernel, words, &failure);
  }
  uint64_t number;
  started_.push_back(&node);
  const int code = in_flight_->start_in_turn(kernel, words, number, failure);
  if (code != NPU_OK) failed_ = started_[number - first_];
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
