#include "csrc/sanitizer/clock.h"

#include <algorithm>

namespace npu {

void VectorClock::raise(size_t stream, uint64_t number) {
  if (stream >= at_.size()) at_.resize(stream + 1);
  at_[stream] = std::max(at_[stream], number);
}

bool VectorClock::join(const VectorClock& other, size_t but) {
  at_.resize(std::max(at_.size(), other.at_.size()));
  bool grew = false;
  for (size_t i = 0; i < other.at_.size(); ++i) {
    if (other.at_[i] <= at_[i] || i == but) continue;
    at_[i] = other.at_[i];
    grew = true;
  }
  return grew;
}

void ClockHistory::join(uint64_t from, const VectorClock& other, size_t self) {
  Knot next{from, now()};
  if (!next.clock.join(other, self)) return;
  if (knots_.back().from == from) {
    knots_.back() = std::move(next);
    return;
  }
  knots_.push_back(std::move(next));
  if (knots_.size() > kMost) knots_.pop_front();
}

const VectorClock& ClockHistory::before(uint64_t number) const {
  static const VectorClock nothing;
  if (number == 0) return nothing;
  for (auto at = knots_.rbegin(); at != knots_.rend(); ++at)
    if (at->from < number) return at->clock;
  return knots_.front().clock;
}

}  // namespace npu
