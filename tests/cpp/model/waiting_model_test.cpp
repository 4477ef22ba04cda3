// Sleeping and waking under every schedule within the bounds: no wake-up is
// lost, and with a planted bug one is.
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/sequence.h"
#include "tests/cpp/model/expect.h"

namespace npu::model {
namespace {

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

  Atomic<int> work_[2];
  BasicParking<System> parking_;
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
    require(took_ || told_, "work is left, and nobody knows");
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

  Atomic<int> work_, stop_;
  BasicParking<System> parking_;
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
    require(data_[id].get() == id, "wrong data");
  }

 private:
  Plain<int> data_[3];
  BasicSequence<System> sequence_;
};

TEST(WaitingModel, LosesNoWakeUpWhateverTheFences) {
  for (const Fences fences :
       {Fences::kAsymmetric, Fences::kSymmetric, Fences::kNone}) {
    expect_correct<ParkingProgram>("parking", {3, 2}, fences);
    expect_correct<SequenceProgram>("sequence", {3, 1}, fences);
    if (fences != Fences::kNone)
      expect_correct<LeavingProgram>("leaving", {3, 2}, fences);
  }
}

TEST(WaitingModel, FindsPlantedBugs) {
  constexpr int kParked = made_as(2);
  expect_each_found<ParkingProgram>(
      {3, 2}, {{"a missing fence", kNoFence},
               {"a wake-up that is not sent", {kParked, kWake, kSkip}},
               {"a flag that is not raised", {kParked, kStore, kSkip}},
               {"a placement that two use", {kParked, kStore, kRelax}}});
  expect_each_found<LeavingProgram>(
      {3, 2}, {{"a missing fence", kNoFence},
               {"a consumer without a sign", {kParked, kStore, kSkip}}});
  // The order of the members of Sequence.
  constexpr int kValue = made_as(0), kWakeAt = made_as(1), kWakes = made_as(2);
  expect_each_found<SequenceProgram>(
      {3, 1},
      {{"a missing fence", kNoFence},
       {"an advance without release", {kValue, kStore, kRelax}},
       {"a read without acquire", {kValue, kLoad, kRelax}},
       {"a target that is not noted", {kWakeAt, kReadModifyWrite, kSkip}},
       {"a wake-up that is not counted", {kWakes, kReadModifyWrite, kSkip}},
       {"a wake-up that is not sent", {kWakes, kWake, kSkip}}});
}

}  // namespace
}  // namespace npu::model
