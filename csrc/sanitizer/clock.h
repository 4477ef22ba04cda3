// Which tasks of each stream are known to be done before something starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace npu {

// For every stream (by a small dense index), how many of its tasks come before.
class VectorClock {
 public:
  uint64_t operator[](size_t stream) const {
    return stream < at_.size() ? at_[stream] : 0;
  }
  void raise(size_t stream, uint64_t number);
  // True when the number of a stream other than `but` grew.
  bool join(const VectorClock& other, size_t but = ~size_t{0});
  size_t size() const { return at_.size(); }

 private:
  std::vector<uint64_t> at_;
};

// A stream's clock at each of its positions. It changes only where the stream
// is made to wait, so only those places are kept.
class ClockHistory {
 public:
  // The clock of tasks at and after the last change. The stream's own tasks
  // are not part of it: they are in order anyway.
  const VectorClock& now() const { return knots_.back().clock; }

  // Everything from position `from` on comes after `other`. No earlier call had
  // a larger `from`. `self`: the stream's own index.
  void join(uint64_t from, const VectorClock& other, size_t self);

  // The clock of the last task below `number`.
  const VectorClock& before(uint64_t number) const;

 private:
  // More knots than a program has unfinished waits. Older knots merge into
  // later ones, which can only hide a race between tasks that far apart.
  static constexpr size_t kMost = 256;

  struct Knot {
    uint64_t from;
    VectorClock clock;
  };
  std::deque<Knot> knots_{1};
};

}  // namespace npu
