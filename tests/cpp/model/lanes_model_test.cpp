// The lanes of a graph under every schedule within the bounds: a node runs
// after those that it waits for, and a lane that ends early releases the
// others.
#include "csrc/graph/lane.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

// Who gives up need not wake who waits, who looks now and then; so no fence
// matters either.
struct Looking : System {
  static void light_fence() {}
  static void heavy_fence() {}
  static Woken futex_wait(const void*, uint32_t, uint64_t) {
    yield();
    return Woken::kTimeout;
  }
};

constexpr int kFailed = 1;

// Nodes 0 and 2 are the kernels of the first lane, 1 is its wait; node 4 is the
// kernel of the second lane, and 3 its wait: for the start, or for node 0.
constexpr int kNodes = 5;

// What all programs have: two lanes, as Body has them.
template <typename S>
struct Lanes : Program {
  explicit Lanes(bool fork_at_start) : fork_at_start_(fork_at_start) {
    lanes_[0].nodes = {0, 1, 2};
    lanes_[1].nodes = {3, 4};
  }

  // As Body::run_lane(). `code` is what the second lane's kernel returns.
  template <typename Stopped>
  int run(int lane, uint64_t replay, int code, Stopped stopped) {
    if (lane == 0) lanes_[0].begin(replay);
    const auto run_node = [&](uint32_t node) {
      switch (node) {
        case 0:
          return kernel(0, replay, {});
        case 1:
          return lanes_[1].wait(replay, 2, 0, stopped) ? 0 : kFailed;
        case 2:
          return kernel(2, replay, {0, 4});
        case 3: {
          const size_t n = fork_at_start_ ? 0 : 1;
          return lanes_[0].reached(replay, n) ||
                         lanes_[0].wait(replay, n, 0, stopped)
                     ? 0
                     : kFailed;
        }
      }
      if (code) return code;
      return fork_at_start_ ? kernel(4, replay, {}) : kernel(4, replay, {0});
    };
    return lanes_[lane].run(replay, npu_failure{}, run_node,
                            [](uint32_t node) { return node % 4 == 0; });
  }
  int run(int lane, uint64_t replay) {
    return run(lane, replay, 0, [] { return false; });
  }

  // Reads what other nodes wrote in this replay.
  int kernel(int node, uint64_t replay, std::initializer_list<int> before) {
    for (const int other : before)
      require(value_[other].get() == int(replay) + 1,
              "a node runs before one that it waits for");
    value_[node].set(int(replay) + 1);
    return 0;
  }

  BasicLane<S> lanes_[2];  // five atomics each
  Plain<int> value_[kNodes];
  const bool fork_at_start_;
};

// Two replays behind one another on the same streams. Nobody wakes up by
// himself.
template <bool kForkAtStart>
struct Replays : Lanes<System> {
  Replays() : Lanes(kForkAtStart) {}
  int threads() const override { return 2; }
  void thread(int id) override {
    for (uint64_t replay = 0; replay < 2; ++replay)
      require(!run(id, replay), "a lane gives up");
  }
  void finish() override {
    require(value_[2].get() == 2, "a node did not run");
  }
};

// Two replays, the second on another stream than the first (its lanes are
// threads 2 and 1): it comes after the first's first lane.
struct Moves : Lanes<System> {
  Moves() : Lanes(false) {}
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      require(!run(0, 0), "a lane gives up");
      over_.advance_to(1);
    } else if (id == 1) {
      require(!run(1, 0), "a lane gives up");
      while (!over_.sleep(1, 0)) {
      }
      require(!run(0, 1), "a lane gives up");
    } else {
      // Nothing keeps the stream of the second lane from beginning.
      require(!run(1, 1), "a lane gives up");
    }
  }
  BasicSequence<System> over_;
};

// The second lane fails, or is dropped, in the first replay, and the first lane
// then gives up. Who clears the error lets both streams begin the next one.
enum class Ends { kFails, kIsDropped, kIsStopped };
template <Ends kEnds>
struct EndsEarly : Lanes<Looking> {
  EndsEarly() : Lanes(false) {}
  int threads() const override { return kEnds == Ends::kIsStopped ? 3 : 2; }
  void thread(int id) override {
    if (id == 2) return stop_.store(1, kRelaxed);
    const auto stopped = [this] { return stop_.load(kRelaxed) != 0; };
    if (id == 0) {
      require(run(0, 0, 0, stopped), "it goes on behind a failure");
    } else if (kEnds == Ends::kIsDropped) {
      lanes_[1].give_up(0);  // as Body::dropped()
    } else if (kEnds == Ends::kFails) {
      require(run(1, 0, kFailed, stopped), "a failure is lost");
    } else {
      // Its kernel does not end before the device is stopped.
      while (!stopped()) yield();
    }
    over_[id].store(1, std::memory_order_release);
    while (!over_[1 - id].load(std::memory_order_acquire)) yield();
    require(!run(id, 1), "a failure of the replay before counts");
  }
  void finish() override {
    require(value_[2].get() == 2, "a node did not run");
  }
  Atomic<int> stop_, over_[2];
};

// The first lane fails at once, its error is cleared, and the next replay
// begins while the second lane is still in the first one.
struct Overtakes : Lanes<Looking> {
  Overtakes() : Lanes(false) {}
  int threads() const override { return 2; }
  void thread(int id) override {
    if (id == 0) {
      lanes_[0].begin(0);
      lanes_[0].give_up(0);
      require(!run(0, 1), "a failure of the replay before counts");
    } else {
      require(run(1, 0), "it goes on behind a failure");
      require(!run(1, 1), "a failure of the replay before counts");
    }
  }
};

TEST(LanesModel, KeepTheOrderOfTheGraphInEachReplay) {
  expect_correct<Replays<false>>("fork at a node", {3, 1});
  expect_correct<Replays<true>>("fork at the start", {3, 1});
  expect_correct<Moves>("the next replay on another stream", {2, 1});
}

TEST(LanesModel, GoOnWhereOneEndsEarly) {
  expect_correct<EndsEarly<Ends::kFails>>("failure", {2, 1});
  expect_correct<EndsEarly<Ends::kIsDropped>>("drop", {2, 1});
  expect_correct<EndsEarly<Ends::kIsStopped>>("stop", {2, 1});
  expect_correct<Overtakes>("overtaken by the next replay", {3, 2});
}

// The atomics of the first lane's progress and failure, and of the second's.
constexpr int kFirst = made_as(0), kSecond = made_as(5),
              kSecondWakeAt = made_as(6), kSecondFailed = made_as(9);

TEST(LanesModel, FindPlantedBugs) {
  expect_each_found<Replays<false>>(
      {3, 1}, {{"a signal without release", {kFirst, kStore, kRelax}},
               {"a wait without acquire", {kSecond, kLoad, kRelax}},
               {"a signal that is not given", {kSecond, kStore, kSkip}},
               {"a wait that ends a node early", {kSecond, kLoad, kLie, 1}},
               {"a sleeper that is not noted",
                {kSecondWakeAt, kReadModifyWrite, kSkip}},
               {"a missing fence", kNoFence}});
  const Planted untold{"an end that the others are not told",
                       {kSecondFailed, kStore, kSkip}};
  expect_each_found<EndsEarly<Ends::kIsDropped>>({2, 1}, {untold});
  expect_each_found<EndsEarly<Ends::kFails>>(
      {2, 1}, {untold,
               {"a failure of the replay before that counts",
                {kSecondFailed, kLoad, kLie, 1}}});
}

}  // namespace
}  // namespace npu::model
