#include "csrc/graph/run_ahead.h"

#include "csrc/graph/body.h"

namespace npu {

RunAhead::RunAhead(InFlight* in_flight, const Body& body, const Lane* lane)
    : in_flight_(in_flight),
      first_(in_flight ? in_flight->started() + 1 : 0),
      body_(body),
      lane_(lane) {}

const Node& RunAhead::node_of(uint64_t number) const {
  uint64_t at = first_ - 1;
  for (size_t i = 0;; ++i) {
    const Node& node = body_.nodes[lane_ ? lane_->nodes[i] : i];
    if (node.kind == Node::Kind::kKernel &&
        !(node.call.kernel->flags & NPU_KERNEL_ON_HOST) && ++at == number)
      return node;
  }
}

int RunAhead::start(const Node& node, npu_failure& failure) {
  const npu_kernel* const kernel = node.call.kernel;
  const uint64_t* const words = node.call.words.data();
  if (kernel->flags & NPU_KERNEL_ON_HOST) {
    if (const int code = finish(failure)) return code;
    failed_ = &node;
    return kernel->run(kernel, words, &failure);
  }
  uint64_t number;
  const int code = in_flight_->start_in_turn(kernel, words, number, failure);
  if (code != NPU_OK) failed_ = &node_of(number);
  return code;
}

int RunAhead::finish(npu_failure& failure) {
  if (!in_flight_) return NPU_OK;
  uint64_t number;
  const int code = in_flight_->finish(number, failure);
  if (code != NPU_OK) failed_ = &node_of(number);
  return code;
}

}  // namespace npu
