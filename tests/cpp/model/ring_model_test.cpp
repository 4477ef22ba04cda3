// Runs the ring's own code under every schedule within the bounds; and with
// planted bugs, each of which must be found.
#include "csrc/taskqueue/ring.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

// What a ring of two slots is made of, in the order of its members.
constexpr int kTail = made_as(5), kKnown = made_as(6), kRetired = made_as(7);
constexpr int kLap = 1;
enum class Consumer { kCorrect, kRetiresBeforeItReads };

struct Slot {
  model::Atomic<uint32_t> lap{0};
  Plain<int> value;
};

template <int kProducers, int kEach, int kCapacity>
class RingProgram : public Program {
 public:
  explicit RingProgram(Consumer consumer) : consumer_(consumer) {
    for (auto& slot : slots_) slot.lap.label(kLap);
  }
  int threads() const override { return kProducers + 1; }

  void thread(int id) override {
    if (id < kProducers) {
      for (int i = 0; i < kEach; ++i) produce(id * kEach + i);
    } else {
      consume();
    }
  }

 private:
  using Tested = Ring<Slot, model::System>;

  void produce(int value) {
    uint64_t p;
    while ((p = ring_.claim()) == kRingFull) model::yield();
    ring_.slot(p).value.set(value);
    ring_.publish(p);
  }

  void consume() {
    int next[kProducers] = {};
    for (int seen = 0; seen < kProducers * kEach;) {
      Slot* front = ring_.front();
      if (!front) {
        model::yield();
        continue;
      }
      if (consumer_ == Consumer::kRetiresBeforeItReads) ring_.retire();
      const int value = front->value.get();
      const int from = value / kEach;
      model::require(value % kEach == next[from]++, "out of order");
      if (consumer_ == Consumer::kCorrect) ring_.retire();
      ++seen;
    }
  }

  const Consumer consumer_;
  Slot slots_[kCapacity];
  model::Atomic<uint64_t> shown_;
  Tested ring_{slots_, kCapacity, shown_};
};

// A consumer that looks ahead, as one whose driver ends tasks later: it reads
// two values where they lie before it gives their slots back.
class LookAheadProgram : public Program {
 public:
  LookAheadProgram() {
    for (auto& slot : slots_) slot.lap.label(kLap);
  }
  int threads() const override { return 2; }

  void thread(int id) override {
    if (id == 0) {
      for (int value = 0; value < kValues; ++value) {
        uint64_t p;
        while ((p = ring_.claim()) == kRingFull) model::yield();
        ring_.slot(p).value.set(value);
        ring_.publish(p);
      }
      return;
    }
    for (uint64_t p = 0; p < kValues; p += 2) {
      for (uint64_t ahead = p; ahead < p + 2; ++ahead) {
        Slot* slot;
        while (!(slot = ring_.at(ahead))) model::yield();
        model::require(slot->value.get() == int(ahead), "out of order");
      }
      ring_.retire();
      ring_.retire();
    }
  }

 private:
  static constexpr int kValues = 4;

  Slot slots_[2];
  model::Atomic<uint64_t> shown_;
  Ring<Slot, model::System> ring_{slots_, 2, shown_};
};

template <int kProducers, int kEach, int kCapacity>
Outcome explore(const Limits& limits, const Mutant& mutant = {},
                Consumer consumer = Consumer::kCorrect) {
  return model::explore(limits, mutant, Fences::kAsymmetric, [consumer] {
    return std::make_unique<RingProgram<kProducers, kEach, kCapacity>>(
        consumer);
  });
}

TEST(RingModel, HoldsForOneProducerOverSeveralLaps) {
  expect_correct("1 x 5, capacity 2", explore<1, 5, 2>({3, 1}));
}
TEST(RingModel, HoldsForTwoProducersOnTheSmallestRing) {
  expect_correct("2 x 2, capacity 2", explore<2, 2, 2>({2, 1}));
}
TEST(RingModel, HoldsForTwoProducersAndManyStaleReads) {
  expect_correct("2 x 2, capacity 2", explore<2, 2, 2>({1, 3}));
}
TEST(RingModel, HoldsForTwoProducersWithRoom) {
  expect_correct("2 x 3, capacity 4", explore<2, 3, 4>({1, 1}));
}
TEST(RingModel, HoldsForThreeProducers) {
  expect_correct("3 x 1, capacity 2", explore<3, 1, 2>({1, 1}));
}

Outcome explore_look_ahead(const Mutant& mutant = {}) {
  return model::explore({2, 2}, mutant, Fences::kAsymmetric,
                        [] { return std::make_unique<LookAheadProgram>(); });
}

TEST(RingModel, HoldsForAConsumerThatLooksAhead) {
  expect_correct("1 x 4, capacity 2, looks ahead", explore_look_ahead());
}
TEST(RingModel, FindsALookAheadWithoutAcquire) {
  expect_found("at",
               explore_look_ahead({kLap, Operation::kLoad, Effect::kRelax}));
}

void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore<2, 2, 2>({2, 1}, mutant));
}

TEST(RingModel, FindsAPublishWithoutRelease) {
  expect_mutant_found("publish", {kLap, Operation::kStore, Effect::kRelax});
}
TEST(RingModel, FindsAFrontWithoutAcquire) {
  expect_mutant_found("front", {kLap, Operation::kLoad, Effect::kRelax});
}
TEST(RingModel, FindsAKnownNumberLoadedWithoutAcquire) {
  expect_mutant_found("load of known",
                      {kKnown, Operation::kLoad, Effect::kRelax});
}
TEST(RingModel, FindsAKnownNumberStoredWithoutRelease) {
  expect_mutant_found("store of known",
                      {kKnown, Operation::kStore, Effect::kRelax});
}
TEST(RingModel, FindsARetiredLoadedWithoutAcquire) {
  expect_mutant_found("load of retired",
                      {kRetired, Operation::kLoad, Effect::kRelax});
}
TEST(RingModel, FindsARetireWithoutRelease) {
  expect_mutant_found("retire", {kRetired, Operation::kStore, Effect::kRelax});
}
TEST(RingModel, FindsAClaimThatIgnoresAFullRing) {
  expect_mutant_found("claim", {kRetired, Operation::kLoad, Effect::kLie, 2});
}
TEST(RingModel, FindsARetireThatDoesNotHappen) {
  expect_mutant_found("no retire",
                      {kRetired, Operation::kStore, Effect::kSkip});
}
TEST(RingModel, FindsAClaimThatDoesNotMoveTheTail) {
  expect_mutant_found("no claim",
                      {kTail, Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(RingModel, FindsAConsumerThatRetiresBeforeItReads) {
  expect_found("consumer",
               explore<2, 2, 2>({2, 1}, {}, Consumer::kRetiresBeforeItReads));
}

}  // namespace
}  // namespace npu::model
