// Runs the arena's own code under every schedule within the bounds: no chunk is
// given to two users, and each sees what the one before wrote.
#include "csrc/taskqueue/arena.h"

#include <map>

#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

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
    model::require(chunks_.size() == made, "a chunk is lost");
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
    model::require(!chunk.used, "a chunk is given to two users");
    chunk.used = true;
    chunk.contents.set(1);
    return words;
  }
  void give(uint64_t* words) {
    chunks_[words].used = false;
    arena_.give(words);
  }

  BasicArena<model::System, 2, kTagged> arena_;  // its heads are made first
  std::map<uint64_t*, Chunk> chunks_;
};

template <bool kTagged = true, int kThreads = 2>
Outcome explore(const Limits& limits, const Mutant& mutant = {}) {
  return model::explore(limits, mutant, Fences::kAsymmetric, [] {
    return std::make_unique<ArenaProgram<kTagged, kThreads>>();
  });
}

TEST(ArenaModel, HoldsForTwoThreads) {
  expect_correct("2 threads", explore({4, 2}));
}
TEST(ArenaModel, HoldsForThreeThreads) {
  expect_correct("3 threads", explore<true, 3>({2, 1}));
}
TEST(ArenaModel, FindsAHeadWithoutATag) {
  expect_found("no tag", explore<false>({4, 2}));
}

void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore({4, 2}, mutant));
}

TEST(ArenaModel, FindsAGiveWithoutRelease) {
  expect_mutant_found("give",
                      {kHead, Operation::kReadModifyWrite, Effect::kNoRelease});
}
TEST(ArenaModel, FindsATakeWithoutAcquire) {
  expect_mutant_found("take",
                      {kHead, Operation::kReadModifyWrite, Effect::kNoAcquire});
}
TEST(ArenaModel, FindsAHeadReadWithoutAcquire) {
  expect_mutant_found("head", {kHead, Operation::kLoad, Effect::kRelax});
}
TEST(ArenaModel, FindsATakeThatDoesNotHappen) {
  expect_mutant_found("no take",
                      {kHead, Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(ArenaModel, FindsALinkThatIsNotStored) {
  expect_mutant_found("no link",
                      {kFirstNext, Operation::kStore, Effect::kSkip});
}

}  // namespace
}  // namespace npu::model
