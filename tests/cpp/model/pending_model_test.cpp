// Blocks that other streams use, under every schedule within the bounds: a new
// owner gets the memory when every use has ended, and then does get it.
#include "csrc/memory/pending.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/model/expect.h"

namespace npu::model {
namespace {

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
class OneUse : public Program {
 public:
  explicit OneUse(LeftOut left_out) : allocator_(left_out) {}
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) return own();
    if (id == 1) return launch();
    while (!freed_.load(kRelaxed)) yield();
    own_next();
  }

 private:
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
class TwoUses : public Program {
 public:
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

 private:
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
