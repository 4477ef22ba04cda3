// Runs the ring's own code under every schedule within the bounds; and with
// planted bugs, each of which must be found.
#include "csrc/taskqueue/ring.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

enum Label { kTail = 1, kKnownHead, kHead, kLap };
enum class Consumer { kCorrect, kPopsBeforeItReads };

struct Slot {
  model::Atomic<uint32_t> lap{0};
  Plain<int> value;
};

template <int kProducers, int kEach, int kCapacity>
class RingProgram : public Program {
 public:
  explicit RingProgram(Consumer consumer) : consumer_(consumer) {
    control_.tail.label(kTail);
    control_.known_head.label(kKnownHead);
    control_.head.label(kHead);
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
        ring_.flush();
        model::yield();
        continue;
      }
      if (consumer_ == Consumer::kPopsBeforeItReads) ring_.pop();
      const int value = front->value.get();
      const int from = value / kEach;
      model::require(value % kEach == next[from]++, "out of order");
      if (consumer_ == Consumer::kCorrect) ring_.pop();
      ++seen;
    }
  }

  const Consumer consumer_;
  Slot slots_[kCapacity];
  RingControl<model::Atomic> control_;
  Tested ring_{slots_, kCapacity, control_};
};

// A consumer that looks ahead, as one whose driver ends tasks later: it reads
// each value where it lies, says so, and gives no slot back. A thread that has
// heard it says on its behalf that the slots are free.
class FreedAheadProgram : public Program {
 public:
  FreedAheadProgram() {
    control_.known_head.label(kKnownHead);
    for (auto& slot : slots_) slot.lap.label(kLap);
  }
  int threads() const override { return 3; }

  void thread(int id) override {
    if (id == 0) {
      for (int value = 0; value < kValues; ++value) {
        uint64_t p;
        while ((p = ring_.claim()) == kRingFull) model::yield();
        ring_.slot(p).value.set(value);
        ring_.publish(p);
      }
    } else if (id == 1) {
      uint64_t read;
      while (!(read = read_.load(std::memory_order_acquire))) model::yield();
      ring_.freed(read);
    } else {
      for (uint64_t p = 0; p < kValues; ++p) {
        Slot* slot;
        while (!(slot = ring_.at(p))) model::yield();
        model::require(slot->value.get() == int(p), "out of order");
        read_.store(p + 1, std::memory_order_release);
      }
    }
  }

 private:
  static constexpr int kValues = 3;

  Slot slots_[2];
  RingControl<model::Atomic> control_;
  Ring<Slot, model::System> ring_{slots_, 2, control_};
  model::Atomic<uint64_t> read_{0};
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

Outcome explore_freed_ahead(const Mutant& mutant = {}) {
  return model::explore({1, 1}, mutant, Fences::kAsymmetric,
                        [] { return std::make_unique<FreedAheadProgram>(); });
}

TEST(RingModel, HoldsForAConsumerWhoseSlotsAnotherThreadFrees) {
  expect_correct("1 x 3, capacity 2, freed ahead", explore_freed_ahead());
}
TEST(RingModel, FindsSlotsThatAreFreedWithoutRelease) {
  expect_found("freed", explore_freed_ahead(
                            {kKnownHead, Operation::kStore, Effect::kRelax}));
}
TEST(RingModel, FindsALookAheadWithoutAcquire) {
  expect_found("at",
               explore_freed_ahead({kLap, Operation::kLoad, Effect::kRelax}));
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
TEST(RingModel, FindsAKnownHeadLoadedWithoutAcquire) {
  expect_mutant_found("load of known_head",
                      {kKnownHead, Operation::kLoad, Effect::kRelax});
}
TEST(RingModel, FindsAKnownHeadStoredWithoutRelease) {
  expect_mutant_found("store of known_head",
                      {kKnownHead, Operation::kStore, Effect::kRelax});
}
TEST(RingModel, FindsAHeadLoadedWithoutAcquire) {
  expect_mutant_found("load of head",
                      {kHead, Operation::kLoad, Effect::kRelax});
}
TEST(RingModel, FindsAFlushWithoutRelease) {
  expect_mutant_found("flush", {kHead, Operation::kStore, Effect::kRelax});
}
TEST(RingModel, FindsAClaimThatIgnoresAFullRing) {
  expect_mutant_found("claim", {kHead, Operation::kLoad, Effect::kLie, 2});
}
TEST(RingModel, FindsAFlushThatDoesNotHappen) {
  expect_mutant_found("no flush", {kHead, Operation::kStore, Effect::kSkip});
}
TEST(RingModel, FindsAClaimThatDoesNotMoveTheTail) {
  expect_mutant_found("no claim",
                      {kTail, Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(RingModel, FindsAConsumerThatPopsBeforeItReads) {
  expect_found("consumer",
               explore<2, 2, 2>({2, 1}, {}, Consumer::kPopsBeforeItReads));
}

}  // namespace
}  // namespace npu::model
