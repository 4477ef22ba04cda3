// The memory that a graph uses and does not own.
#pragma once

#include <atomic>
#include <deque>
#include <string>

#include "csrc/graph/body.h"
#include "csrc/memory/block.h"

namespace npu {

// Knows when a tensor is freed that was made before a capture and that the
// graph reads or writes: its memory may be another one's by the next replay.
// The tasks of groups do not count, because their tensors may be replaced.
// Private pools' memory, where graphs leave each other results, and the host's
// are not watched.
class Inputs {
 public:
  // `body`: of a capture that has ended. It outlives this object.
  explicit Inputs(const Body& body);
  ~Inputs();
  Inputs(const Inputs&) = delete;

  // Whether all of it is there.
  bool alive() const { return !ended_.load(std::memory_order_acquire); }
  // What is not, and who has freed it.
  std::string missing() const;

 private:
  struct Input {
    BlockWatch watch;
    uint32_t node;  // that is the first to use it
  };

  struct Empty {};
  Inputs(Empty, const Body& body) : body_(body) {}

  const Body& body_;
  std::atomic<bool> ended_{false};
  std::deque<Input> inputs_;
};

}  // namespace npu
