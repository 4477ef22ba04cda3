// Who shares memory, under every schedule within the bounds: no chunk of an
// arena is given to two users, a lock has one holder, each sees what the one
// before wrote, and a block that other streams use gets a new owner when every
// use has ended, and then does get one.
#include "csrc/memory/pending.h"
#include "csrc/taskqueue/arena.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

// The heads of the two smallest classes; all chunks here are of the second one.
constexpr int kHead = made_as(1), kFirstNext = made_as(2);

// Two chunks lie in the arena. One thread takes two and keeps one for a while,
// the others take, or take two.
template <bool kTagged, int kThreads>
struct ArenaProgram : Program {
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
struct Counting : Program {
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
  Lock lock_;  // its atomics are the program's first
  Plain<int> count_;
};

using Sleep = BasicSleepLock<System, 0>;
using Sole = BasicSoleLock<System, 0>;

TEST(LockModel, HasOneHolder) {
  expect_correct<Counting<Sleep, 2, 2>>("sleep lock, 2 threads", {3, 2});
  expect_correct<Counting<Sleep, 3, 1>>("sleep lock, 3 threads", {3, 2});
  expect_correct<Counting<Sole, 2, 2>>("sole lock, 2 threads", {3, 2});
  expect_correct<Counting<Sole, 2, 2>>("sole lock, 2 fences", {3, 1},
                                       Fences::kSymmetric);
  expect_correct<Counting<Sole, 3, 1>>("sole lock, 3 threads", {2, 1});
}

TEST(LockModel, FindsPlantedBugs) {
  constexpr int kState = made_as(0);
  expect_each_found<Counting<Sleep, 2, 2>>(
      {3, 2},
      {{"a lock that is not taken", {kState, kReadModifyWrite, kSkip}},
       {"an order that is not kept", {kState, kReadModifyWrite, kRelax}},
       {"a wake-up that is not sent", {kState, kWake, kSkip}}});
  constexpr int kOwner = made_as(0), kInside = made_as(1);
  expect_each_found<Counting<Sole, 3, 1>>(
      {2, 1},
      {{"a missing fence", kNoFence},
       {"a sole user that does not say it is inside", {kInside, kStore, kSkip}},
       {"a leave without release", {kInside, kStore, kRelax}},
       {"a wait without acquire", {kInside, kLoad, kRelax}},
       {"an owner that is not noted", {kOwner, kReadModifyWrite, kSkip}},
       {"an end without release", {kOwner, kStore, kRelax}},
       {"an enter without acquire", {kOwner, kLoad, kRelax}}});
}

// What a planted bug of the allocator leaves out.
enum class LeftOut { kNothing, kRecord, kNumbers, kLookAtUses, kPush };

// As npu::Block, with the memory in place of its address.
template <typename Stream>
struct Block {
  enum class State { kActive, kPending };
  using Use = BasicBlockUse<Stream>;

  State state = State::kActive;
  Block* link = nullptr;
  Use* uses = nullptr;
  Plain<int> memory;
};

// The part of CachingAllocator that knows of uses, of one block. Its functions
// are called with the lock.
template <typename Stream>
class Allocator {
 public:
  using Block = model::Block<Stream>;
  using Use = typename Block::Use;

  explicit Allocator(LeftOut left_out) : left_out_(left_out) {}

  // As record_stream().
  void record(Stream& stream) {
    if (left_out_ == LeftOut::kRecord) return;
    spare_uses_.give(new Use{});
    spare_uses_.add(block_, &stream);
  }
  // As free_used_elsewhere().
  void free() {
    if (left_out_ != LeftOut::kNumbers) spare_uses_.note_free(block_);
    if (left_out_ == LeftOut::kLookAtUses || spare_uses_.have_ended(block_))
      free_ = &block_;
    else if (left_out_ != LeftOut::kPush)
      pending_.push(&block_);
  }
  // As poll_pending() and BlockPool::take(); null: there is nothing.
  Block* take() {
    pending_.poll(pending_.count, spare_uses_,
                  [this](Block* block) { free_ = block; });
    return std::exchange(free_, nullptr);
  }
  // As pending_points(), the first of them; null: there is none.
  Use* point() { return pending_.count ? pending_.first->uses : nullptr; }
  Block& block() { return block_; }

 private:
  const LeftOut left_out_;
  Block block_;
  Block* free_ = nullptr;
  BasicSpareUses<Block, Use> spare_uses_;
  BasicPendingBlocks<Block> pending_;
};

// A stream with its ring. The owner gives it a task that uses the block and
// frees the block; the launcher runs the task; another thread wants memory.
struct OneUse : Program {
  explicit OneUse(LeftOut left_out) : allocator_(left_out) {}
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) return own();
    if (id == 1) return launch();
    while (!freed_.load(kRelaxed)) yield();
    own_next();
  }
  struct Slot {
    Atomic<uint32_t> lap{0};
  };
  // As npu::Stream: two of its functions.
  struct Stream {
    uint64_t tail() const { return ring.tail(); }
    BasicSequence<System>& retired() { return ring.retired(); }

    Slot slots[2];
    Atomic<uint64_t> shown;
    Ring<Slot, System> ring{slots, 2, shown};
  };

  void own() {
    allocator_.block().memory.set(1);
    locked([this] { allocator_.record(stream_); });
    stream_.ring.publish(stream_.ring.claim());
    locked([this] { allocator_.free(); });
    freed_.store(1, kRelaxed);  // the lock orders it
  }
  void launch() {
    while (!stream_.ring.front()) yield();
    require(allocator_.block().memory.get() == 1,
            "a block is given away while it is used");
    stream_.ring.retire();
  }
  // As CachingAllocator::allocate_slow(), where only the block is left.
  void own_next() {
    Block<Stream>* taken = nullptr;
    BasicBlockUse<Stream>* point = nullptr;
    const auto take = [&] {
      if ((taken = allocator_.take())) return;
      if ((point = allocator_.point())) number_ = point->number;
    };
    locked(take);
    if (!taken && point) {
      while (!stream_.retired().sleep(number_, 0)) {
      }
      locked(take);
    }
    require(taken, "a block is lost");
    taken->memory.set(2);
  }
  template <typename Call>
  void locked(Call call) {
    lock_.lock();
    call();
    lock_.unlock();
  }

  Stream stream_;  // its atomics are the program's first: the laps, ...
  BasicSoleLock<System, 0> lock_;
  Atomic<int> freed_;
  Allocator<Stream> allocator_;
  uint64_t number_ = 0;
};

// Two streams use the block; of each there is one task. The owner wants memory
// again.
struct TwoUses : Program {
  explicit TwoUses(LeftOut left_out) : allocator_(left_out) {
    for (Stream& stream : streams_) allocator_.record(stream);
  }
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id < 2) {
      allocator_.block().memory.get();
      streams_[id].ended.advance_to(1);
      return;
    }
    allocator_.free();
    Block<Stream>* taken;
    while (!(taken = allocator_.take())) {
      auto* const point = allocator_.point();
      require(point, "a block is lost");
      while (!point->stream->retired().sleep(point->number, 0)) {
      }
    }
    taken->memory.set(1);
  }
  struct Stream {
    uint64_t tail() const { return 1; }
    BasicSequence<System>& retired() { return ended; }
    BasicSequence<System> ended;
  };

  Stream streams_[2];  // four atomics each
  Allocator<Stream> allocator_;
};

TEST(PendingModel, GivesABlockAfterItsUses) {
  expect_correct<OneUse>("one use", {2, 1}, LeftOut::kNothing);
  expect_correct<TwoUses>("two uses", {3, 1}, LeftOut::kNothing);
}

// The laps are 0 and 1, `shown` is 2, and the ring has its own from 3 on.
constexpr int kRetired = made_as(7), kInside = made_as(12);
constexpr int kSecondEnded = made_as(4);

TEST(PendingModel, FindsPlantedBugs) {
  const std::pair<const char*, LeftOut> left_out[] = {
      {"a use that is not recorded", LeftOut::kRecord},
      {"a use without the number of its end", LeftOut::kNumbers},
      {"uses that nobody looks at", LeftOut::kLookAtUses},
      {"a block that is forgotten", LeftOut::kPush}};
  for (const auto& [name, what] : left_out)
    expect_each_found<OneUse>({2, 1}, {{name, {}}}, what);
  expect_each_found<OneUse>(
      {2, 1},
      {{"a retire without release", {kRetired, kStore, kRelax}},
       {"a look without acquire", {kRetired, kLoad, kRelax}},
       {"a look that sees too much", {kRetired, kLoad, kLie, 1}},
       {"an end that is not told", {kRetired, kStore, kSkip}},
       {"a lock that does not order", {kInside, kStore, kRelax}}},
      LeftOut::kNothing);
  expect_each_found<TwoUses>({3, 1},
                             {{"a second use that is taken for ended",
                               {kSecondEnded, kLoad, kLie, 1}}},
                             LeftOut::kNothing);
}

}  // namespace
}  // namespace npu::model
