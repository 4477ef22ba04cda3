// Runs the code of arenas, locks and sole users under every schedule within the
// bounds: no chunk is given to two users, a lock has one holder, and each sees
// what the one before wrote.
#include <map>
#include <memory>

#include "csrc/taskqueue/arena.h"
#include "csrc/taskqueue/sole_lock.h"
#include "csrc/taskqueue/sole_user.h"
#include "tests/cpp/model/expect.h"

namespace npu::model {
namespace {

// The heads of the two smallest classes; all chunks here are of the second one.
constexpr int kHead = made_as(1), kFirstNext = made_as(2);

// Two chunks lie in the arena. One thread takes two and keeps one for a while,
// the others take, or take two.
template <bool kTagged, int kThreads>
class ArenaProgram : public Program {
 public:
  ArenaProgram() {
    uint64_t* const first = take();
    uint64_t* const second = take();
    give(second);
    give(first);
  }
  int threads() const override { return kThreads; }
  void thread(int id) override {
    uint64_t* const first = take();
    uint64_t* const second = id < 2 ? take() : nullptr;
    give(first);
    if (second) give(second);
  }
  void finish() override {
    // Nothing is lost either: the arena gives out what it has.
    const size_t made = chunks_.size();
    for (size_t i = 0; i < made; ++i) take();
    require(chunks_.size() == made, "a chunk is lost");
    for (auto& [words, chunk] : chunks_) give(words);
  }

 private:
  struct Chunk {
    Plain<int> contents;
    bool used = false;
  };

  uint64_t* take() {
    uint64_t* const words = arena_.take(1);
    Chunk& chunk = chunks_[words];
    require(!chunk.used, "a chunk is given to two users");
    chunk.used = true;
    chunk.contents.set(1);
    return words;
  }
  void give(uint64_t* words) {
    chunks_[words].used = false;
    arena_.give(words);
  }

  BasicArena<System, 2, kTagged> arena_;  // its heads are made first
  std::map<uint64_t*, Chunk> chunks_;
};

TEST(ArenaModel, GivesEachChunkToOneUser) {
  expect_correct<ArenaProgram<true, 2>>("2 threads", {4, 2});
  expect_correct<ArenaProgram<true, 3>>("3 threads", {2, 1});
}

TEST(ArenaModel, FindsPlantedBugs) {
  expect_each_found<ArenaProgram<false, 2>>({4, 2},
                                            {{"a head without a tag", {}}});
  expect_each_found<ArenaProgram<true, 2>>(
      {4, 2},
      {{"a give without release", {kHead, kReadModifyWrite, kNoRelease}},
       {"a take without acquire", {kHead, kReadModifyWrite, kNoAcquire}},
       {"a head that is read without acquire", {kHead, kLoad, kRelax}},
       {"a take that does not happen", {kHead, kReadModifyWrite, kSkip}},
       {"a link that is not stored", {kFirstNext, kStore, kSkip}}});
}

template <typename Lock, int kThreads, int kEach>
class Counting : public Program {
 public:
  int threads() const override { return kThreads; }
  void thread(int) override {
    for (int i = 0; i < kEach; ++i) {
      lock_.lock();
      count_.set(count_.get() + 1);
      lock_.unlock();
    }
  }
  void finish() override {
    require(count_.get() == kThreads * kEach, "a count is lost");
  }

 private:
  Lock lock_;  // its atomics are the program's first
  Plain<int> count_;
};

using Sleep = BasicSleepLock<System, 0>;
using Sole = BasicSoleLock<System, 0>;

TEST(LockModel, HasOneHolder) {
  expect_correct<Counting<Sleep, 2, 2>>("sleep lock, 2 threads", {3, 2});
  expect_correct<Counting<Sleep, 3, 1>>("sleep lock, 3 threads", {3, 2});
  expect_correct<Counting<Sole, 2, 2>>("sole lock, 2 threads", {3, 1});
  expect_correct<Counting<Sole, 3, 1>>("sole lock, 3 threads", {2, 1});
}

TEST(LockModel, FindsPlantedBugs) {
  constexpr int kState = made_as(0);
  expect_each_found<Counting<Sleep, 2, 2>>(
      {3, 2},
      {{"a lock that is not taken", {kState, kReadModifyWrite, kSkip}},
       {"an order that is not kept", {kState, kReadModifyWrite, kRelax}},
       {"a wake-up that is not sent", {kState, kWake, kSkip}}});
}

// All threads count: the sole one by plain stores, else by atomic additions.
template <int kThreads, int kEach>
class SoleCounting : public Program {
 public:
  int threads() const override { return kThreads; }

  void thread(int) override {
    for (int i = 0; i < kEach; ++i) {
      if (user_.enter()) {
        const uint64_t count = count_.load(std::memory_order_relaxed);
        last_.set(count);
        count_.store(count + 1, std::memory_order_relaxed);
        user_.leave();
      } else {
        require(last_.get() <= count_.fetch_add(1, std::memory_order_relaxed),
                "what the sole user wrote is not seen");
      }
    }
  }
  void finish() override {
    require(
        count_.load(std::memory_order_relaxed) == uint64_t(kThreads) * kEach,
        "a count is lost");
  }

 private:
  SoleUser<System> user_;  // its atomics are the program's first two
  Atomic<uint64_t> count_{0};
  Plain<uint64_t> last_;
};

TEST(SoleUserModel, HasOneThreadInside) {
  expect_correct<SoleCounting<2, 2>>("2 threads", {3, 2});
  expect_correct<SoleCounting<2, 2>>("2 fences", {3, 2}, Fences::kSymmetric);
  expect_correct<SoleCounting<3, 1>>("3 threads", {2, 1});
}

TEST(SoleUserModel, FindsPlantedBugs) {
  constexpr int kOwner = made_as(0), kInside = made_as(1);
  expect_each_found<SoleCounting<3, 1>>(
      {2, 1},
      {{"a missing fence", kNoFence},
       {"a sole user that does not say it is inside", {kInside, kStore, kSkip}},
       {"a leave without release", {kInside, kStore, kRelax}},
       {"a wait without acquire", {kInside, kLoad, kRelax}},
       {"an owner that is not noted", {kOwner, kReadModifyWrite, kSkip}},
       {"an end without release", {kOwner, kStore, kRelax}},
       {"an enter without acquire", {kOwner, kLoad, kRelax}}});
}

}  // namespace
}  // namespace npu::model
