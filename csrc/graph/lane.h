// A stream's part of a graph, and how the parts of one replay wait for each
// other.
#pragma once

#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/taskqueue/task_wait.h"

namespace npu {

class Stream;

// A stream of the capture. A replay runs the first lane on the current stream,
// and the others on their own. When a replay has failed, lanes of it may still
// run while the next replay begins.
template <typename System>
struct BasicLane {
  Stream* stream;
  std::vector<uint32_t> nodes;
  // Per replay: 1 when the first lane starts, 1 more for each node.
  BasicSequence<System> progress;
  // The number of the last replay in which this lane has failed, plus 1; 0: it
  // has failed in none. Stored with release and loaded with acquire in a wait:
  // the thread that sees the number sees `why`.
  typename System::template Atomic<uint64_t> failed{0};
  // The failure of that replay; without text where its task was dropped.
  npu_failure why{};

  // Called for the first lane only, which ends each replay last. Another lane
  // may come to the next replay while a lane still waits for what it did in
  // this one, and begin() would hide that.
  void begin(uint64_t replay) { progress.advance_to(mark(replay, 0)); }
  // Calls run(node) until one returns another outcome than 0, which it has
  // described in `failure`.
  template <typename Run, typename Signals>
  int run(uint64_t replay, const npu_failure& failure, Run run,
          Signals signals) {
    uint64_t done = mark(replay, 0);
    for (const uint32_t node : nodes) {
      if (const int code = run(node)) [[unlikely]]
        return give_up(replay, &failure), code;
      ++done;
      if (signals(node)) progress.advance_to(done);
    }
    return 0;
  }
  // `failure`: null where nothing of the replay has run.
  void give_up(uint64_t replay, const npu_failure* failure = nullptr) {
    why = failure ? *failure : npu_failure{};
    failed.store(replay + 1, std::memory_order_release);
  }

  // Whether `n` nodes are done. A lane that another one waits for does not
  // begin the next replay, unless it has failed.
  bool reached(uint64_t replay, size_t n) const {
    const uint64_t done = progress.value();
    return done >= mark(replay, n) && done <= mark(replay, nodes.size());
  }
  // Waits until reached(). False: the lane has failed, or given_up() says so.
  template <typename GivenUp>
  bool wait(uint64_t replay, size_t n, uint64_t spin_ns, GivenUp given_up) {
    const auto over = [&] {
      return failed.load(std::memory_order_acquire) > replay || given_up();
    };
    return wait_in_task(progress, mark(replay, n), spin_ns, over) &&
           reached(replay, n);
  }
  uint64_t mark(uint64_t replay, size_t n) const {
    return replay * (nodes.size() + 1) + 1 + n;
  }
};

using Lane = BasicLane<System>;

}  // namespace npu
