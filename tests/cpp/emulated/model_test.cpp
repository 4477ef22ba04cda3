// The model of an emulated device, which is told the time.
#include "csrc/driver/emulated/model.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

using Engine = DeviceModel::Engine;

TEST(DeviceModel, StartsInOrderAndWhenReady) {
  DeviceModel model(4, 1);
  auto& queue = *model.add(0);
  model.submit(queue, {1, Engine::kCompute, 100, 10, 50});
  model.submit(queue, {2, Engine::kCompute, 100, 10, 20});
  model.submit(queue, {3, Engine::kCompute, 500, 10, 20});
  EXPECT_EQ(queue.expected_end(), 530u);
  model.advance(1000);
  EXPECT_EQ(queue.begun.size(), 3u);
  EXPECT_EQ(queue.begun[0].start, 100u);
  EXPECT_EQ(queue.begun[0].end, 160u);
  EXPECT_EQ(queue.begun[1].start, 160u);
  EXPECT_EQ(queue.begun[1].end, 190u);
  EXPECT_EQ(queue.begun[2].start, 500u);
  EXPECT_EQ(queue.begun[2].end, 530u);
}

TEST(DeviceModel, OverlapsWhatSurroundsKernelsAndNotTheirWork) {
  DeviceModel model(2, 1);
  auto &a = *model.add(0), &b = *model.add(0), &c = *model.add(0);
  model.submit(a, {1, Engine::kCompute, 0, 10, 100});
  model.submit(b, {1, Engine::kCompute, 0, 10, 100});
  model.submit(c, {1, Engine::kCompute, 0, 10, 100});  // no third slot
  model.advance(1000);
  EXPECT_EQ(a.begun[0].end, 110u);
  EXPECT_EQ(b.begun[0].end, 210u);
  EXPECT_EQ(c.begun[0].start, 110u);
  EXPECT_EQ(c.begun[0].end, 310u);
}

TEST(DeviceModel, GivesEachQueueItsTurn) {
  DeviceModel model(1, 1);
  auto &deep = *model.add(0), &late = *model.add(0);
  for (uint64_t i = 1; i <= 10; ++i)
    model.submit(deep, {i, Engine::kCompute, 0, 0, 100});
  model.advance(150);
  model.submit(late, {1, Engine::kCompute, 150, 0, 100});
  model.advance(2000);
  EXPECT_TRUE(late.begun[0].end <= 400u);
  EXPECT_EQ(deep.begun.back().end, 1100u);
}

TEST(DeviceModel, PrefersTheMoreUrgentOfTwo) {
  DeviceModel model(1, 1);
  auto &normal = *model.add(0), &urgent = *model.add(-1);
  model.submit(normal, {1, Engine::kCompute, 0, 0, 100});
  model.submit(urgent, {1, Engine::kCompute, 0, 0, 100});
  model.advance(1000);
  EXPECT_EQ(urgent.begun[0].start, 0u);
  EXPECT_EQ(normal.begun[0].start, 100u);
}

TEST(DeviceModel, CopiesBesideKernelsAndOneToAnEngine) {
  DeviceModel model(1, 1);
  auto &a = *model.add(0), &b = *model.add(0), &kernels = *model.add(0);
  model.submit(a, {1, Engine::kCopy, 0, 5, 100});
  model.submit(b, {1, Engine::kCopy, 0, 5, 100});
  model.submit(kernels, {1, Engine::kCompute, 0, 0, 70});
  model.advance(1000);
  EXPECT_EQ(a.begun[0].end, 105u);
  EXPECT_EQ(b.begun[0].end, 210u);
  EXPECT_EQ(kernels.begun[0].end, 70u);
}

// A stop gives back the slot and the units of what had begun.
TEST(DeviceModel, GivesBackWhatAQueueHadWhenItIsReset) {
  for (const Engine engine : {Engine::kCompute, Engine::kCopy}) {
    DeviceModel model(1, 1);
    auto &stopped = *model.add(0), &other = *model.add(0);
    model.submit(stopped, {1, engine, 0, 5, 1'000'000});
    model.submit(stopped, {2, engine, 0, 5, 1'000'000});
    model.advance(100);
    model.reset(stopped, 100);
    model.submit(other, {1, engine, 100, 10, 50});
    model.advance(1'000);
    EXPECT_EQ(other.begun.size(), 1u);
    EXPECT_EQ(other.begun[0].start, 100u);
    EXPECT_EQ(other.begun[0].end, 160u);
  }
}

// Whichever is stopped first: the work of the second had waited for the
// first's.
TEST(DeviceModel, GivesBackWhatTwoQueuesHadWhenBothAreReset) {
  for (const bool in_order : {true, false}) {
    DeviceModel model(2, 1);
    auto &a = *model.add(0), &b = *model.add(0), &other = *model.add(0);
    model.submit(a, {1, Engine::kCompute, 0, 5, 1'000'000});
    model.submit(b, {1, Engine::kCompute, 0, 5, 1'000'000});
    model.advance(100);
    model.reset(in_order ? a : b, 100);
    model.reset(in_order ? b : a, 100);
    model.submit(other, {1, Engine::kCompute, 100, 10, 50});
    model.advance(1'000);
    EXPECT_EQ(other.begun.size(), 1u);
    EXPECT_EQ(other.begun[0].end, 160u);
  }
}

TEST(DeviceModel, KeepsTheTimesOfAQueueThatIsNotReset) {
  DeviceModel model(3, 1);
  auto &stopped = *model.add(0), &kept = *model.add(0), &later = *model.add(0);
  model.submit(stopped, {1, Engine::kCompute, 0, 0, 100});
  model.submit(kept, {1, Engine::kCompute, 0, 0, 100});
  model.advance(10);
  model.reset(stopped, 10);
  model.submit(later, {1, Engine::kCompute, 10, 0, 100});
  model.advance(1'000);
  EXPECT_EQ(kept.begun[0].end, 200u);
  EXPECT_EQ(later.begun[0].end, 300u);
}

TEST(DeviceModel, BeginsNothingThatMayStillBeOvertaken) {
  DeviceModel model(1, 1);
  auto& queue = *model.add(0);
  model.submit(queue, {1, Engine::kCompute, 200, 0, 10});
  model.advance(100);
  EXPECT_TRUE(queue.begun.empty());
  EXPECT_EQ(model.next_end(queue), 210u);
  model.reset(queue, 100);
  EXPECT_EQ(model.next_end(queue), 0u);
}

}  // namespace
}  // namespace npu
