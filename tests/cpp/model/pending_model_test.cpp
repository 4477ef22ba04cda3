// Blocks that other streams use, under every schedule within the bounds: a new
// owner gets the memory when every use has ended, and then does get it.
#include "csrc/memory/pending.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// What a planted bug of the allocator leaves out.
enum class Without { kNothing, kRecord, kNumbers, kLookAtUses, kPush };

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

  explicit Allocator(Without without) : without_(without) {}

  // As record_stream().
  void record(Stream& stream) {
    if (without_ == Without::kRecord) return;
    spare_uses_.give(new Use{});
    spare_uses_.add(block_, &stream);
  }
  // As free_used_elsewhere().
  void free() {
    if (without_ != Without::kNumbers) spare_uses_.note_free(block_);
    if (without_ == Without::kLookAtUses || spare_uses_.have_ended(block_))
      free_ = &block_;
    else if (without_ != Without::kPush)
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
  const Without without_;
  Block block_;
  Block* free_ = nullptr;
  BasicSpareUses<Block, Use> spare_uses_;
  BasicPendingBlocks<Block> pending_;
};

// A stream with its ring. The owner gives it a task that uses the block and
// frees the block; the launcher runs the task; another thread wants memory.
class OneUse : public Program {
 public:
  explicit OneUse(Without without) : allocator_(without) {}
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) return own();
    if (id == 1) return launch();
    while (!freed_.load(kRelaxed)) model::yield();
    own_next();
  }

 private:
  struct Slot {
    model::Atomic<uint32_t> lap{0};
  };
  // As npu::Stream: two of its functions.
  struct Stream {
    uint64_t tail() const { return ring.tail(); }
    BasicSequence<model::System>& retired() { return ring.retired(); }

    Slot slots[2];
    model::Atomic<uint64_t> shown;
    Ring<Slot, model::System> ring{slots, 2, shown};
  };

  void own() {
    allocator_.block().memory.set(1);
    locked([this] { allocator_.record(stream_); });
    stream_.ring.publish(stream_.ring.claim());
    locked([this] { allocator_.free(); });
    freed_.store(1, kRelaxed);  // the lock orders it
  }
  void launch() {
    while (!stream_.ring.front()) model::yield();
    model::require(allocator_.block().memory.get() == 1,
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
    model::require(taken, "a block is lost");
    taken->memory.set(2);
  }
  template <typename Call>
  void locked(Call call) {
    lock_.lock();
    call();
    lock_.unlock();
  }

  Stream stream_;  // its atomics are the program's first: the laps, ...
  BasicSoleLock<model::System, 0> lock_;
  model::Atomic<int> freed_;
  Allocator<Stream> allocator_;
  uint64_t number_ = 0;
};

// Two streams use the block; of each there is one task. The owner wants memory
// again.
class TwoUses : public Program {
 public:
  explicit TwoUses(Without without) : allocator_(without) {
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
      model::require(point, "a block is lost");
      while (!point->stream->retired().sleep(point->number, 0)) {
      }
    }
    taken->memory.set(1);
  }

 private:
  struct Stream {
    uint64_t tail() const { return 1; }
    BasicSequence<model::System>& retired() { return ended; }
    BasicSequence<model::System> ended;
  };

  Stream streams_[2];  // four atomics each
  Allocator<Stream> allocator_;
};

template <typename P>
Outcome explore(const Limits& limits, const Mutant& mutant = {},
                Without without = Without::kNothing) {
  return model::explore(limits, mutant, Fences::kAsymmetric,
                        [without] { return std::make_unique<P>(without); });
}

TEST(PendingModel, GivesABlockAfterItsUse) {
  expect_correct("one use", explore<OneUse>({2, 1}));
}
TEST(PendingModel, GivesABlockAfterBothUses) {
  expect_correct("two uses", explore<TwoUses>({3, 1}));
}

// The laps are 0 and 1, `shown` is 2, and the ring has its own from 3 on.
constexpr int kRetired = made_as(7), kInside = made_as(12);
constexpr int kSecondEnded = made_as(4);

void expect_bug_found(const char* name, Without without) {
  expect_found(name, explore<OneUse>({2, 1}, {}, without));
}
void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore<OneUse>({2, 1}, mutant));
}

TEST(PendingModel, FindsAUseThatIsNotRecorded) {
  expect_bug_found("no record", Without::kRecord);
}
TEST(PendingModel, FindsAUseWithoutTheNumberOfItsEnd) {
  expect_bug_found("no number", Without::kNumbers);
}
TEST(PendingModel, FindsUsesThatNobodyLooksAt) {
  expect_bug_found("no look", Without::kLookAtUses);
}
TEST(PendingModel, FindsABlockThatIsForgotten) {
  expect_bug_found("no push", Without::kPush);
}
TEST(PendingModel, FindsARetireWithoutRelease) {
  expect_mutant_found("retire", {kRetired, Operation::kStore, Effect::kRelax});
}
TEST(PendingModel, FindsALookWithoutAcquire) {
  expect_mutant_found("look", {kRetired, Operation::kLoad, Effect::kRelax});
}
TEST(PendingModel, FindsALookThatSeesTooMuch) {
  expect_mutant_found("too much",
                      {kRetired, Operation::kLoad, Effect::kLie, 1});
}
TEST(PendingModel, FindsAnEndThatIsNotTold) {
  expect_mutant_found("no end", {kRetired, Operation::kStore, Effect::kSkip});
}
TEST(PendingModel, FindsALockThatDoesNotOrder) {
  expect_mutant_found("lock", {kInside, Operation::kStore, Effect::kRelax});
}
TEST(PendingModel, FindsASecondUseThatIsTakenForEnded) {
  expect_found("second use",
               explore<TwoUses>(
                   {3, 1}, {kSecondEnded, Operation::kLoad, Effect::kLie, 1}));
}

}  // namespace
}  // namespace npu::model
