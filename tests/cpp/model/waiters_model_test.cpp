// Runs the code of waiters and completion ports under every schedule within the
// bounds: each completion that add() promises is delivered once, and its memory
// is freed once, after its last use.
#include "csrc/taskqueue/waiters.h"

#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

using Port = BasicCompletionPort<model::System>;

// What waiters ask of a stream.
struct Retiring {
  BasicSequence<model::System> sequence;
  BasicSequence<model::System>& retired() { return sequence; }
};
std::unique_ptr<StreamError> error_before(const Retiring&, uint64_t) {
  return nullptr;
}

// The numbers that each event loop adds, 0: none; a port per loop.
struct Plan {
  int retired;          // how far the stream gets before it is destroyed
  int loops;            // at most two
  int numbers[2][2];    // of each loop
  bool closes = false;  // a loop lets go of its port before it is told
};

class WaitersProgram : public Program {
 public:
  explicit WaitersProgram(const Plan& plan) : plan_(plan) {
    for (int loop = 0; loop < plan_.loops; ++loop) ports_[loop] = Port::make();
  }
  int threads() const override { return 1 + plan_.loops; }
  void thread(int id) override { id == 0 ? retire() : run_loop(id - 1); }
  void finish() override {
    if (plan_.closes) return;
    for (int loop = 0; loop < plan_.loops; ++loop) {
      model::require(!ports_[loop]->take(), "told of what is not promised");
      ports_[loop]->release();
    }
  }

 private:
  void retire() {
    for (int n = 1; n <= plan_.retired; ++n) {
      data_[n].set(n);
      if (stream_.sequence.advance_to(uint64_t(n)))
        waiters_.retired(stream_, uint64_t(n));
    }
  }

  void run_loop(int loop) {
    Port& port = *ports_[loop];
    bool promised[kNumbers] = {};
    int left = 0;
    for (const int n : plan_.numbers[loop]) {
      if (!n) continue;
      if (!waiters_.add(stream_.retired(), uint64_t(n), port, uint64_t(n))) {
        model::require(data_[n].get() == n, "add() has not seen the work");
      } else if (n <= plan_.retired) {
        promised[n] = true;
        ++left;
      }
    }
    if (plan_.closes) return port.release();
    while (left) {
      const auto completion = port.take();
      if (!completion) {
        EventFd::poll(port.fd());
        continue;
      }
      const auto n = completion->token;
      model::require(std::exchange(promised[n], false), "told twice");
      model::require(data_[n].get() == int(n), "wrong data");
      --left;
    }
  }

  static constexpr int kNumbers = 4;

  const Plan plan_;
  Retiring stream_;
  BasicWaiters<model::System> waiters_;
  Port* ports_[2];
  Plain<int> data_[kNumbers];
};

// The order in which the atomics are made: of the sequence, the waiters, the
// first port, the first completion where there is only one port.
constexpr int kAdded = made_as(4), kDescriptor = made_as(5),
              kHolders = made_as(6), kDelivered = made_as(7),
              kTaken = made_as(9), kUsers = made_as(10);

constexpr Plan kOne{1, 1, {{1}}};
constexpr Plan kTwo{2, 1, {{1, 2}}};
constexpr Plan kTwoBackwards{2, 1, {{2, 1}}};
constexpr Plan kClosed{1, 1, {{1}}, true};
constexpr Plan kTwoLoops{1, 2, {{1}, {1}}};

Outcome explore(const Plan& plan, const Limits& limits,
                const Mutant& mutant = {},
                Fences fences = Fences::kAsymmetric) {
  return model::explore(limits, mutant, fences, [&plan] {
    return std::make_unique<WaitersProgram>(plan);
  });
}

TEST(WaitersModel, TellsALoopOnce) {
  expect_correct("one", explore(kOne, {4, 2}));
}
TEST(WaitersModel, TellsALoopOnceWithTwoFences) {
  expect_correct("one", explore(kOne, {4, 2}, {}, Fences::kSymmetric));
}
TEST(WaitersModel, TellsOfTwoNumbers) {
  expect_correct("two", explore(kTwo, {3, 2}));
  expect_correct("two, backwards", explore(kTwoBackwards, {3, 2}));
}
TEST(WaitersModel, TellsTwoLoops) {
  expect_correct("two loops", explore(kTwoLoops, {2, 1}));
}
TEST(WaitersModel, FreesWhatIsNeverReached) {
  expect_correct("not reached", explore({1, 1, {{2, 3}}}, {3, 2}));
  expect_correct("closed", explore({1, 1, {{1, 2}}, true}, {3, 1}));
}
TEST(WaitersModel, OutlivesItsLoop) {
  expect_correct("closed", explore(kClosed, {4, 2}));
}

void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore(kTwo, {2, 1}, mutant));
}

constexpr auto kChange = Operation::kReadModifyWrite;

TEST(WaitersModel, FindsAMissingFence) {
  expect_mutant_found("fence", {kFenceLabel, Operation::kFence, Effect::kSkip});
}
TEST(WaitersModel, FindsAnAddedListWithoutRelease) {
  expect_mutant_found("push", {kAdded, kChange, Effect::kNoRelease});
}
TEST(WaitersModel, FindsAnAddedListWithoutAcquire) {
  expect_mutant_found("pop", {kAdded, kChange, Effect::kNoAcquire});
}
TEST(WaitersModel, FindsACompletionThatBothTake) {
  expect_mutant_found("taken", {kTaken, kChange, Effect::kSkip});
}
TEST(WaitersModel, FindsACompletionFreedBeforeTheOtherUser) {
  expect_mutant_found("release", {kUsers, kChange, Effect::kNoRelease});
  expect_mutant_found("acquire", {kUsers, kChange, Effect::kNoAcquire});
}
TEST(WaitersModel, FindsACompletionThatIsNotFreed) {
  expect_mutant_found("users", {kUsers, kChange, Effect::kSkip});
}
TEST(WaitersModel, FindsADeliveryWithoutRelease) {
  expect_mutant_found("deliver", {kDelivered, kChange, Effect::kNoRelease});
}
TEST(WaitersModel, FindsAFetchWithoutAcquire) {
  expect_mutant_found("fetch", {kDelivered, kChange, Effect::kNoAcquire});
}
TEST(WaitersModel, FindsADescriptorThatIsNotWrittenTo) {
  expect_mutant_found("descriptor", {kDescriptor, kChange, Effect::kSkip});
}
TEST(WaitersModel, FindsAPortFreedBeforeTheOtherUser) {
  const auto find = [](Effect effect) {
    expect_found("port", explore(kClosed, {3, 1}, {kHolders, kChange, effect}));
  };
  find(Effect::kNoRelease);
  find(Effect::kNoAcquire);
}

}  // namespace
}  // namespace npu::model
