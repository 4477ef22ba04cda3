// Runs the kernels of a replay on a device where they end after their start has
// returned: it starts one behind another, and waits for all of them together.
#pragma once

#include <cstdint>

#include "csrc/graph/lane.h"
#include "csrc/taskqueue/in_flight.h"

namespace npu {

struct Node;
class Body;

// One run of a program. Nothing is in flight when it begins.
class RunAhead {
 public:
  // `in_flight`: null where kernels are done when their start returns, so that
  // there is nothing to wait for.
  // `lane`: whose nodes are run; null: all nodes.
  RunAhead(InFlight* in_flight, const Body& body, const Lane* lane);

  // Whether kernels end after their start has returned.
  bool late() const { return in_flight_; }
  // Starts a node's kernel. Waits for room, and, where the host runs the
  // kernel, for everything before it. Returns an outcome, perhaps of an earlier
  // node.
  int start(const Node& node, npu_failure& failure);
  // Waits until all that was started has ended.
  int finish(npu_failure& failure);
  // The node whose kernel failed, after an outcome other than NPU_OK.
  const Node& failed() const { return *failed_; }

 private:
  // The node whose kernel has that number. It is looked for where one has
  // failed, so that a replay notes nothing, for which there may be no memory.
  const Node& node_of(uint64_t number) const;

  InFlight* const in_flight_;
  const uint64_t first_;  // the number of the first node that is started
  const Body& body_;
  const Lane* const lane_;
  const Node* failed_ = nullptr;
};

}  // namespace npu
