// Runs the code of waiters and completion ports under every schedule within the
// bounds: each completion that add() promises is delivered once, and its memory
// is freed once, after its last use.
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/waiters.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

using Port = BasicCompletionPort<System>;

// What waiters ask of a stream.
struct Retiring {
  BasicSequence<System> sequence;
  BasicSequence<System>& retired() { return sequence; }
};
std::shared_ptr<const StreamError> error_before(const Retiring&, uint64_t) {
  return nullptr;
}

// The numbers that each event loop adds, 0: none; a port per loop.
struct Plan {
  int retired;          // how far the stream gets before it is destroyed
  int loops;            // at most two
  int numbers[2][2];    // of each loop
  bool closes = false;  // a loop lets go of its port before it is told
};

struct WaitersProgram : Program {
  explicit WaitersProgram(const Plan& plan) : plan_(plan) {
    for (int loop = 0; loop < plan_.loops; ++loop) ports_[loop] = Port::make();
  }
  int threads() const override { return 1 + plan_.loops; }
  void thread(int id) override { id == 0 ? retire() : run_loop(id - 1); }
  void finish() override {
    if (plan_.closes) return;
    for (int loop = 0; loop < plan_.loops; ++loop) {
      require(!ports_[loop]->take(), "told of what is not promised");
      ports_[loop]->release();
    }
  }
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
        require(data_[n].get() == n, "add() has not seen the work");
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
      require(std::exchange(promised[n], false), "told twice");
      require(data_[n].get() == int(n), "wrong data");
      --left;
    }
  }

  static constexpr int kNumbers = 4;

  const Plan plan_;
  Retiring stream_;
  BasicWaiters<System> waiters_;
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

TEST(WaitersModel, TellsEachLoopOnceAndFreesAll) {
  expect_correct<WaitersProgram>("one", {4, 2}, kOne);
  expect_correct<WaitersProgram>("one, two fences", {4, 2}, Fences::kSymmetric,
                                 kOne);
  expect_correct<WaitersProgram>("two numbers", {3, 2}, kTwo);
  expect_correct<WaitersProgram>("backwards", {3, 2}, kTwoBackwards);
  expect_correct<WaitersProgram>("two loops", {2, 1}, kTwoLoops);
  expect_correct<WaitersProgram>("not reached", {3, 2}, Plan{1, 1, {{2, 3}}});
  expect_correct<WaitersProgram>("closed", {4, 2}, kClosed);
  expect_correct<WaitersProgram>("closed, not reached", {3, 1},
                                 Plan{1, 1, {{1, 2}}, true});
}

TEST(WaitersModel, FindsPlantedBugs) {
  constexpr auto kChange = kReadModifyWrite;
  expect_each_found<WaitersProgram>(
      {2, 1},
      {{"a missing fence", kNoFence},
       {"an added list without release", {kAdded, kChange, kNoRelease}},
       {"an added list without acquire", {kAdded, kChange, kNoAcquire}},
       {"a completion that both take", {kTaken, kChange, kSkip}},
       {"a completion freed before its use", {kUsers, kChange, kNoRelease}},
       {"a completion freed and used", {kUsers, kChange, kNoAcquire}},
       {"a completion that is not freed", {kUsers, kChange, kSkip}},
       {"a delivery without release", {kDelivered, kChange, kNoRelease}},
       {"a fetch without acquire", {kDelivered, kChange, kNoAcquire}},
       {"a descriptor that is not written", {kDescriptor, kChange, kSkip}}},
      kTwo);
  expect_each_found<WaitersProgram>(
      {3, 1},
      {{"a port freed before its use", {kHolders, kChange, kNoRelease}},
       {"a port freed and used", {kHolders, kChange, kNoAcquire}}},
      kClosed);
}

}  // namespace
}  // namespace npu::model
