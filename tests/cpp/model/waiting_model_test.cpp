// Sleeping and waking under every schedule within the bounds: no wake-up is
// lost, and with a planted bug one is.
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/sequence.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// A producer and a driver that reports publish; the consumer parks whenever it
// finds nothing new.
class ParkingProgram : public Program {
 public:
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id < 2) {
      work_[id].store(1, kRelaxed);
      if (id == 1) return parking_.wake_if_parked();
      if (parking_.needs_wake()) parking_.wake();
      return;
    }
    for (;;) {
      const int seen = work();
      if (seen == 2) return;
      parking_.park([&] { return work() > seen; });
    }
  }

 private:
  int work() const { return work_[0].load(kRelaxed) + work_[1].load(kRelaxed); }

  model::Atomic<int> work_[2];
  BasicParking<model::System> parking_;
};

// One producer finds a consumer when it begins, and another thread stops that
// consumer. Whatever the order, the consumer takes the work, or the producer is
// told that it has left.
class LeavingProgram : public Program {
 public:
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      work_.store(1, kRelaxed);
      if (parking_.needs_wake()) told_ = !parking_.wake();
    } else if (id == 1) {
      stop_.store(1, kRelaxed);
      parking_.wake_if_parked();
    } else {
      consume();
    }
  }
  void finish() override {
    model::require(took_ || told_, "work is left, and nobody knows");
  }

 private:
  bool has_work() const { return work_.load(kRelaxed); }
  void consume() {
    while (!(took_ = has_work())) {
      if (!stop_.load(kRelaxed)) {
        parking_.park([&] { return has_work() || stop_.load(kRelaxed); });
      } else if (parking_.leave([&] { return has_work(); })) {
        return;
      }
    }
  }

  model::Atomic<int> work_, stop_;
  BasicParking<model::System> parking_;
  bool took_ = false, told_ = false;
};

// One thread advances to 1 and 2; two others sleep for one number each, and
// then read what was written before it.
class SequenceProgram : public Program {
 public:
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      for (int n = 1; n <= 2; ++n) {
        data_[n].set(n);
        sequence_.advance_to(uint64_t(n));
      }
      return;
    }
    while (!sequence_.sleep(uint64_t(id), 0)) {
    }
    model::require(data_[id].get() == id, "wrong data");
  }

 private:
  Plain<int> data_[3];
  BasicSequence<model::System> sequence_;
};

template <typename P>
Outcome explore(const Limits& limits, Fences fences,
                const Mutant& mutant = {}) {
  return model::explore(limits, mutant, fences,
                        [] { return std::make_unique<P>(); });
}

constexpr Mutant kNoFence{model::kFenceLabel, Operation::kFence, Effect::kSkip};

TEST(ParkingModel, LosesNoWakeUpWithMembarrier) {
  expect_correct("parking",
                 explore<ParkingProgram>({3, 2}, Fences::kAsymmetric));
}
TEST(ParkingModel, LosesNoWakeUpWithTwoFences) {
  expect_correct("parking",
                 explore<ParkingProgram>({3, 2}, Fences::kSymmetric));
}
TEST(ParkingModel, GoesOnWithoutASleep) {
  expect_correct("parking", explore<ParkingProgram>({3, 2}, Fences::kNone));
}
TEST(ParkingModel, FindsAMissingFence) {
  expect_found("no fence",
               explore<ParkingProgram>({3, 2}, Fences::kAsymmetric, kNoFence));
}

constexpr int kParked = model::made_as(2);

TEST(LeavingModel, LosesNoWorkWithMembarrier) {
  expect_correct("leaving",
                 explore<LeavingProgram>({3, 2}, Fences::kAsymmetric));
}
TEST(LeavingModel, LosesNoWorkWithTwoFences) {
  expect_correct("leaving",
                 explore<LeavingProgram>({3, 2}, Fences::kSymmetric));
}
TEST(LeavingModel, FindsAMissingFence) {
  expect_found("no fence",
               explore<LeavingProgram>({3, 2}, Fences::kAsymmetric, kNoFence));
}
TEST(LeavingModel, FindsAConsumerThatLeavesWithoutASign) {
  expect_found("no sign", explore<LeavingProgram>(
                              {3, 2}, Fences::kAsymmetric,
                              {kParked, Operation::kStore, Effect::kSkip}));
}

TEST(ParkingModel, FindsAWakeUpThatIsNotSent) {
  expect_found("no wake-up", explore<ParkingProgram>(
                                 {3, 2}, Fences::kAsymmetric,
                                 {kParked, Operation::kWake, Effect::kSkip}));
}
TEST(ParkingModel, FindsAFlagThatIsNotRaised) {
  expect_found("no flag", explore<ParkingProgram>(
                              {3, 2}, Fences::kAsymmetric,
                              {kParked, Operation::kStore, Effect::kSkip}));
}

TEST(ParkingModel, FindsAPlacementThatTwoThreadsUse) {
  expect_found(
      "relaxed flag",
      explore<ParkingProgram>({3, 2}, Fences::kAsymmetric,
                              {kParked, Operation::kStore, Effect::kRelax}));
}

TEST(SequenceModel, LosesNoWakeUpWithMembarrier) {
  expect_correct("sequence",
                 explore<SequenceProgram>({3, 1}, Fences::kAsymmetric));
}
TEST(SequenceModel, LosesNoWakeUpWithTwoFences) {
  expect_correct("sequence",
                 explore<SequenceProgram>({3, 1}, Fences::kSymmetric));
}
TEST(SequenceModel, GoesOnWithoutASleep) {
  expect_correct("sequence", explore<SequenceProgram>({3, 1}, Fences::kNone));
}
TEST(SequenceModel, FindsAMissingFence) {
  expect_found("no fence",
               explore<SequenceProgram>({3, 1}, Fences::kAsymmetric, kNoFence));
}

// The order of the members of Sequence.
constexpr int kValue = model::made_as(0), kWakeAt = model::made_as(1),
              kWakes = model::made_as(2);

void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name,
               explore<SequenceProgram>({3, 1}, Fences::kAsymmetric, mutant));
}

TEST(SequenceModel, FindsAnAdvanceWithoutRelease) {
  expect_mutant_found("advance", {kValue, Operation::kStore, Effect::kRelax});
}
TEST(SequenceModel, FindsAReadWithoutAcquire) {
  expect_mutant_found("value", {kValue, Operation::kLoad, Effect::kRelax});
}
TEST(SequenceModel, FindsATargetThatIsNotRegistered) {
  expect_mutant_found("target",
                      {kWakeAt, Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(SequenceModel, FindsAWakeUpThatIsNotCounted) {
  expect_mutant_found("count",
                      {kWakes, Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(SequenceModel, FindsAWakeUpThatIsNotSent) {
  expect_mutant_found("wake-up", {kWakes, Operation::kWake, Effect::kSkip});
}

}  // namespace
}  // namespace npu::model
