// Runs the ring's own code under every schedule within the bounds; and with
// planted bugs, each of which must be found.
#include "csrc/taskqueue/ring.h"
#include "tests/cpp/model/expect.h"

namespace npu::model {
namespace {

// What a ring of two slots is made of, in the order of its members.
constexpr int kTail = made_as(5), kKnown = made_as(6),
              kRingRetired = made_as(7);
constexpr int kRingLap = 1;
enum class Consumer { kCorrect, kRetiresBeforeItReads };

struct RingSlot {
  Atomic<uint32_t> lap{0};
  Plain<int> value;
};

template <int kProducers, int kEach, int kCapacity>
class RingProgram : public Program {
 public:
  explicit RingProgram(Consumer consumer) : consumer_(consumer) {
    for (auto& slot : slots_) slot.lap.label(kRingLap);
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
  using Tested = Ring<RingSlot, System>;

  void produce(int value) {
    uint64_t p;
    while ((p = ring_.claim()) == kRingFull) yield();
    ring_.slot(p).value.set(value);
    ring_.publish(p);
  }

  void consume() {
    int next[kProducers] = {};
    for (int seen = 0; seen < kProducers * kEach;) {
      RingSlot* front = ring_.front();
      if (!front) {
        yield();
        continue;
      }
      if (consumer_ == Consumer::kRetiresBeforeItReads) ring_.retire();
      const int value = front->value.get();
      const int from = value / kEach;
      require(value % kEach == next[from]++, "out of order");
      if (consumer_ == Consumer::kCorrect) ring_.retire();
      ++seen;
    }
  }

  const Consumer consumer_;
  RingSlot slots_[kCapacity];
  Atomic<uint64_t> shown_;
  Tested ring_{slots_, kCapacity, shown_};
};

// A consumer that looks ahead, as one whose driver ends tasks later: it reads
// two values where they lie before it gives their slots back.
class LookAheadProgram : public Program {
 public:
  LookAheadProgram() {
    for (auto& slot : slots_) slot.lap.label(kRingLap);
  }
  int threads() const override { return 2; }

  void thread(int id) override {
    if (id == 0) {
      for (int value = 0; value < kValues; ++value) {
        uint64_t p;
        while ((p = ring_.claim()) == kRingFull) yield();
        ring_.slot(p).value.set(value);
        ring_.publish(p);
      }
      return;
    }
    for (uint64_t p = 0; p < kValues; p += 2) {
      for (uint64_t ahead = p; ahead < p + 2; ++ahead) {
        RingSlot* slot;
        while (!(slot = ring_.at(ahead))) yield();
        require(slot->value.get() == int(ahead), "out of order");
      }
      ring_.retire();
      ring_.retire();
    }
  }

 private:
  static constexpr int kValues = 4;

  RingSlot slots_[2];
  Atomic<uint64_t> shown_;
  Ring<RingSlot, System> ring_{slots_, 2, shown_};
};

constexpr auto kCorrect = Consumer::kCorrect;

TEST(RingModel, KeepsTheOrderOfEachProducer) {
  expect_correct<RingProgram<1, 5, 2>>("several laps", {3, 1}, kCorrect);
  expect_correct<RingProgram<2, 2, 2>>("the smallest ring", {2, 1}, kCorrect);
  expect_correct<RingProgram<2, 2, 2>>("many stale reads", {1, 3}, kCorrect);
  expect_correct<RingProgram<2, 3, 4>>("with room", {1, 1}, kCorrect);
  expect_correct<RingProgram<3, 1, 2>>("three producers", {1, 1}, kCorrect);
  expect_correct<LookAheadProgram>("a consumer that looks ahead", {2, 2});
}

TEST(RingModel, FindsPlantedBugs) {
  expect_each_found<RingProgram<2, 2, 2>>(
      {2, 1},
      {{"a publish without release", {kRingLap, kStore, kRelax}},
       {"a front without acquire", {kRingLap, kLoad, kRelax}},
       {"a known number loaded without acquire", {kKnown, kLoad, kRelax}},
       {"a known number stored without release", {kKnown, kStore, kRelax}},
       {"a retired loaded without acquire", {kRingRetired, kLoad, kRelax}},
       {"a retire without release", {kRingRetired, kStore, kRelax}},
       {"a claim that ignores a full ring", {kRingRetired, kLoad, kLie, 2}},
       {"a retire that does not happen", {kRingRetired, kStore, kSkip}},
       {"a claim that does not move the tail",
        {kTail, kReadModifyWrite, kSkip}}},
      kCorrect);
  expect_each_found<RingProgram<2, 2, 2>>(
      {2, 1}, {{"a consumer that retires before it reads", {}}},
      Consumer::kRetiresBeforeItReads);
  expect_each_found<LookAheadProgram>(
      {2, 2}, {{"a look ahead without acquire", {kRingLap, kLoad, kRelax}}});
}

}  // namespace
}  // namespace npu::model
