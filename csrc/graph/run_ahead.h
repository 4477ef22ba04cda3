// The kernels of a replay on a device where they end after their start has
// returned: started behind one another, and waited for together.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/taskqueue/in_flight.h"

namespace npu {

struct Node;

// One run of a program. Nothing is in flight when it begins.
class RunAhead {
 public:
  // `in_flight`: null where kernels are done when their start returns. Then
  // there is nothing to wait for.
  explicit RunAhead(InFlight* in_flight);

  // Whether the device runs what is started later.
  bool late() const { return in_flight_; }
  // Starts a node's kernel. Waits for room, and where the engine is to run the
  // kernel for all before it. Returns the outcome; of an earlier node, perhaps.
  int start(const Node& node, npu_failure& failure);
  // Waits until all that was started has ended.
  int finish(npu_failure& failure);
  // The node whose kernel failed, after an outcome other than NPU_OK.
  const Node& failed() const { return *failed_; }

 private:
  InFlight* const in_flight_;
  const uint64_t first_;  // the number of the first node that is started
  std::vector<const Node*> started_;
  const Node* failed_ = nullptr;
};

}  // namespace npu
