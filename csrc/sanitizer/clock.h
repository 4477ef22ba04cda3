// Which tasks of each stream are known to be done before something starts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace npu {

// For every stream (by a small dense index), how many of its tasks come before.
class VectorClock {
 public:
  uint64_t operator[](size_t stream) const {
    return stream < at_.size() ? at_[stream] : 0;
  }
  void raise(size_t stream, uint64_t number) {
    if (stream >= at_.size()) at_.resize(stream + 1);
    at_[stream] = std::max(at_[stream], number);
  }
  // True when the number of a stream other than `but` grew.
  bool join(const VectorClock& other, size_t but = ~size_t{0}) {
    at_.resize(std::max(at_.size(), other.at_.size()));
    bool grew = false;
    for (size_t i = 0; i < other.at_.size(); ++i) {
      if (other.at_[i] <= at_[i] || i == but) continue;
      at_[i] = other.at_[i];
      grew = true;
    }
    return grew;
  }

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
  void join(uint64_t from, const VectorClock& other, size_t self) {
    Knot next{from, now()};
    if (!next.clock.join(other, self)) return;
    if (knots_.back().from == from) {
      knots_.back() = std::move(next);
      return;
    }
    knots_.push_back(std::move(next));
    if (knots_.size() > kMost) knots_.pop_front();
  }

  // The clock of the last task below `number`.
  const VectorClock& before(uint64_t number) const {
    static const VectorClock nothing;
    if (number == 0) return nothing;
    for (auto at = knots_.rbegin(); at != knots_.rend(); ++at)
      if (at->from < number) return at->clock;
    return knots_.front().clock;
  }

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
