// The memory that a graph uses and does not own.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>

#include "csrc/memory/watch.h"

namespace npu {

struct Call;

// Knows when a tensor is freed that the graph does not own and that some of its
// calls read or write: its memory may be another one's by the next replay. The
// memory of the graph's own pool is not watched.
class Inputs {
 public:
  explicit Inputs(uint64_t own_pool) : own_pool_(own_pool) {}
  ~Inputs();
  Inputs(const Inputs&) = delete;

  // What a call only writes, which an update leaves where it is; or the rest,
  // which it replaces; or both.
  enum class Of { kResults, kArguments, kAll };
  // Watches the tensors of the call, all of which exist now, from now on.
  // `node`: whose call it is.
  void add(const Call& call, uint32_t node, Of of = Of::kAll);

  // Whether all of it was there when `ends` frees had been noted
  // (memory_ends_noted()); by default, whether it is there now.
  bool alive(uint64_t ends = UINT64_MAX) const {
    const uint64_t first = first_ended_.load(std::memory_order_acquire);
    return !first || first > ends;
  }
  // The first that was not there then, where there is one.
  struct Missing {
    uint32_t node = 0;  // that uses it
    uint32_t site = 0;  // the call site of its free
    // " at train.py:12 in step", or "" where that is not known.
    std::string where() const noexcept;
  };
  Missing missing(uint64_t ends) const;

 private:
  struct Input {
    MemoryWatch watch;
    uint32_t node;  // that is the first to use it
  };

  const uint64_t own_pool_;
  std::atomic<uint64_t> first_ended_{0};
  std::deque<Input> inputs_;
  std::unordered_set<uint64_t> seen_;  // addresses
};

}  // namespace npu
