// How much of a collective's time the device had nothing else to do.
#pragma once

#include <cstdint>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// From its making on, the stream runs a collective, until its destruction. Used
// by the thread that runs it.
class Exposure {
 public:
  Exposure(const Stream& stream, uint64_t now);
  ~Exposure();
  Exposure(const Exposure&) = delete;

  struct Times {
    uint64_t exposed_ns;  // no other stream of the device ran
    // Of these, host threads waited for the device. Two that wait count once.
    uint64_t host_wait_ns;
  };
  // What is known of other streams is how long each of them has run: where
  // several took turns, the one that ran longest counts alone, so the time is
  // an upper bound.
  Times until(uint64_t now) const;

 private:
  // Calls f(index, ns) with how long each other stream of the device has run
  // what is no collective.
  template <typename F>
  void each_other(uint64_t now, F&& f) const;

  const StreamBlock& mine_;
  const uint64_t start_;
  RunningTime*
      in_call_;  // this stream's; null: its block is not in the segment
  uint64_t host_waits_;
  uint64_t before_[kMaxStreamBlocks];  // of those blocks that there were
  int blocks_ = 0;
};

}  // namespace npu
