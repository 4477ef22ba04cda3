// Threads that work off one graph, under every schedule within the bounds: each
// node runs once, after those that it waits for.
#include "csrc/graph/ready_nodes.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

using Nodes = BasicReadyNodes<model::System>;

enum class Shape { kDiamond, kOfTheFirst, kTwoLevels };

std::vector<RankedNode> nodes_of(Shape shape) {
  switch (shape) {
    case Shape::kDiamond:
      return {{{1, 2}, 0}, {{3}, 1}, {{3}, 1}, {{}, 2}};
    case Shape::kOfTheFirst:
      return {{{2}, 0}, {{2, 3}, 0}, {{}, 2, true}, {{}, 1, true}};
    case Shape::kTwoLevels:
      return {{{2, 3}, 0}, {{2, 3}, 0}, {{}, 2}, {{}, 2}};
  }
  return {};
}

// A replay by two threads, which the first one begins.
template <Shape kShape>
class Works : public Program {
 public:
  int threads() const override { return 2; }
  void thread(int id) override {
    if (id == 0) {
      ready_.begin();
      begun_.store(1, std::memory_order_release);
    } else {
      while (!begun_.load(std::memory_order_acquire)) model::yield();
    }
    work(id == 0);
  }
  void finish() override {
    for (const auto& value : value_)
      model::require(value.get() == 1, "a node did not run once");
  }

 private:
  // As Parallel's threads do.
  void work(bool first) {
    for (int node = Nodes::kNone;;) {
      const int before = changes();
      if (node == Nodes::kNone) node = ready_.take(first);
      if (node != Nodes::kNone) {
        run(node, first);
        node = ready_.done(uint32_t(node), first);
        changes_.fetch_add(1, std::memory_order_relaxed);
      } else if (ready_.over()) {
        // Whoever finds the end sees what all have done.
        for (const auto& value : value_)
          model::require(value.get() == 1, "it ends too early");
        return;
      } else if (changes() == before) {
        model::yield();
      }
    }
  }

  // Whether there is something new to look at; it orders nothing.
  int changes() { return changes_.fetch_add(0, std::memory_order_relaxed); }

  void run(int node, bool first) {
    const RankedNode& it = nodes_[size_t(node)];
    model::require(first || !it.of_the_first, "a node of the first thread");
    for (size_t other = 0; other < nodes_.size(); ++other)
      for (const uint32_t after : nodes_[other].after)
        if (int(after) == node)
          model::require(value_[other].get() == 1,
                         "a node runs before one that it waits for");
    value_[node].set(value_[node].get() + 1);
  }

  const std::vector<RankedNode> nodes_ = nodes_of(kShape);
  Nodes ready_{nodes_};  // four counters, two words, two more
  Plain<int> value_[4];
  model::Atomic<int> begun_, changes_;
};

template <typename P>
Outcome explore(const Limits& limits, const Mutant& mutant = {}) {
  return model::explore(limits, mutant, Fences::kAsymmetric,
                        [] { return std::make_unique<P>(); });
}

TEST(ReadyNodesModel, EachNodeRunsOnceAfterThoseBeforeIt) {
  expect_correct("diamond", explore<Works<Shape::kDiamond>>({3, 2}));
  expect_correct("two levels", explore<Works<Shape::kTwoLevels>>({3, 1}));
}
TEST(ReadyNodesModel, OnlyTheFirstThreadRunsWhatIsItsOwn) {
  expect_correct("of the first", explore<Works<Shape::kOfTheFirst>>({3, 1}));
}

// The atomics: four counters, the words of all and of the first thread, how
// many are left.
constexpr int kCounter3 = made_as(3), kAll = made_as(4), kLeft = made_as(6);

void expect_mutant_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore<Works<Shape::kDiamond>>({3, 2}, mutant));
}

TEST(ReadyNodesModel, FindANodeThatIsPutWithoutRelease) {
  expect_mutant_found("put",
                      {kAll, Operation::kReadModifyWrite, Effect::kNoRelease});
}
TEST(ReadyNodesModel, FindANodeThatIsTakenWithoutAcquire) {
  expect_mutant_found("take",
                      {kAll, Operation::kReadModifyWrite, Effect::kNoAcquire});
}
TEST(ReadyNodesModel, FindACountWithoutRelease) {
  expect_mutant_found(
      "count", {kCounter3, Operation::kReadModifyWrite, Effect::kNoRelease});
}
TEST(ReadyNodesModel, FindACountWithoutAcquire) {
  expect_mutant_found(
      "count", {kCounter3, Operation::kReadModifyWrite, Effect::kNoAcquire});
}
TEST(ReadyNodesModel, FindAnEndWithoutRelease) {
  expect_mutant_found("end",
                      {kLeft, Operation::kReadModifyWrite, Effect::kNoRelease});
}
TEST(ReadyNodesModel, FindAnEndWithoutAcquire) {
  expect_mutant_found("end", {kLeft, Operation::kLoad, Effect::kRelax});
}

}  // namespace
}  // namespace npu::model
