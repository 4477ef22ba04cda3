// Replays a graph of one stream on several cores: nodes that do not depend on
// each other run at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/graph/dependencies.h"
#include "csrc/graph/parallel_policy.h"
#include "csrc/graph/ready_nodes.h"
#include "csrc/placement/shared_loop.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/system.h"

namespace npu {

class Body;

// Runs node `at` of the graph, on any thread; an npu_code. It refers to the
// function that it is made of.
class NodeRunner {
 public:
  template <typename Run>
  NodeRunner(const Run& run)
      : run_([](const void* run, uint32_t at, npu_failure& failure) {
          return (*static_cast<const Run*>(run))(at, failure);
        }),
        context_(&run) {}

  int operator()(uint32_t at, npu_failure& failure) const {
    return run_(context_, at, failure);
  }

 private:
  int (*run_)(const void* context, uint32_t at, npu_failure& failure);
  const void* context_;
};

// Which replays are run so: NPU_DISPATCH_PARALLEL_REPLAYS.
enum class ParallelMode {
  kAuto,    // where it has been faster lately
  kOff,     // none; for graphs that are captured meanwhile, this is final
  kAlways,  // all, where nodes do not depend on each other
};
ParallelMode parallel_mode();
// From the next replay on. Returns the mode before.
ParallelMode set_parallel_mode(ParallelMode mode);

// Which nodes run where is decided anew in each replay: each thread takes the
// most urgent node that is ready. Only the thread that executes the stream's
// tasks uses it; others, to which it gives nodes, take part in run().
class Parallel {
 public:
  // Null where the nodes of the body, whose capture has ended, cannot run at
  // the same time, or have one thread.
  static std::unique_ptr<Parallel> of(const Body& body, int threads);

  // An npu_code. Where several nodes fail, it is the first one's.
  int run(Stream& stream, NodeRunner nodes, npu_failure& failure);

  // What is known after the first replays; read while none is queued.
  const Edges& after() const { return after_; }
  const std::vector<uint64_t>& node_ns() const { return node_ns_; }
  bool planned() const { return ready_.has_value(); }

 private:
  using How = ParallelPolicy::How;
  struct Replay;

  Parallel(Edges after, int threads);

  int run_in_turn(NodeRunner nodes, npu_failure& failure);
  int run_timed(NodeRunner nodes, npu_failure& failure);
  int run_parallel(Stream& stream, int cores, NodeRunner nodes,
                   npu_failure& failure);
  // Ranks the nodes by the times that they took.
  void plan();

  const Edges after_;
  std::vector<uint64_t> node_ns_;  // of each, the least that was seen
  std::vector<bool> of_the_first_;
  ParallelPolicy policy_;
  const int threads_;
  int cores_ = 1;  // of which it has use
  // By rank; empty before plan().
  std::vector<uint32_t> ranked_;
  std::optional<BasicReadyNodes<System>> ready_;
  Crew crew_;
};

}  // namespace npu
