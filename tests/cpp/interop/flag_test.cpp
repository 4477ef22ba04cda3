// Words that tasks set and wait for, and what others see of such a wait.
#include "csrc/interop/flag.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

struct World {
  Flag flag{0};
  Numbers got;
  Stream setting{0, 1, 0, StreamMode::kQueued};
  Stream waiting{0, 2, 0, StreamMode::kQueued};

  void set(uint64_t value, uint64_t if_dropped = kDropped) {
    submit(setting, kSetFlag, {word(&flag), value, if_dropped});
  }
  // The stream that sets flags fails once the gate opens.
  void fail(Gate& gate) {
    submit(setting, kGate, {word(&gate)});
    submit(setting, kFail, {uint64_t{NPU_INDEX_ERROR}});
  }
  void take() { submit(waiting, kTakeFlag, {word(&flag), 0}); }
  void reach(uint64_t number) {
    submit(waiting, kReachFlag, {word(&flag), 0, number});
  }
};

bool held(const Stream& stream) {
  return stream.block().held[int(Hold::kEvent)].word.load() &
         RunningTime::kRunning;
}
void until_held(const Stream& stream) {
  while (!held(stream)) std::this_thread::yield();
}

TEST(Flag, IsTakenByOneTaskForEachTimeItIsSet) {
  World w;
  w.take();
  append(w.waiting, w.got, 1);
  w.take();
  append(w.waiting, w.got, 2);
  until_held(w.waiting);
  EXPECT_EQ(w.waiting.retired().value(), 0);
  w.set(1);
  while (w.waiting.retired().value() < 2) std::this_thread::yield();
  until_held(w.waiting);
  EXPECT_EQ(w.flag.value(), 0);
  w.set(1);
  drain(w.waiting);
  EXPECT_EQ(w.got, Numbers({1, 2}));
  EXPECT_EQ(w.flag.value(), 0);
}

TEST(Flag, IsReachedByItsNumberAndByLaterOnesAlsoWhereTheyWrap) {
  World w;
  for (const uint64_t number : {5, 4}) {
    w.flag.set(5);
    w.reach(number);
    drain(w.waiting);
  }
  w.flag.set(2);
  w.reach(0xfffffffe);  // four before
  drain(w.waiting);
  EXPECT_EQ(w.flag.value(), 2);

  w.reach(3);
  until_held(w.waiting);
  EXPECT_EQ(w.waiting.tail() - w.waiting.retired().value(), 1);
  w.set(3);
  drain(w.waiting);
  EXPECT_TRUE(!w.waiting.failed());
}

TEST(Flag, SaysWhoIsToSetItWhileAStreamWaits) {
  World w;
  const StreamBlock& block = w.waiting.block();
  Gate gate;
  w.take();
  until_held(w.waiting);
  EXPECT_EQ(block.held_by.load(), 0);  // no task will set it yet
  submit(w.setting, kGate, {word(&gate)});
  w.set(1);
  flag_will_be_set(w.flag, w.setting, w.setting.tail());
  while (!block.held_by.load()) std::this_thread::yield();
  EXPECT_EQ(block.held_by.load(), 1 + 1);
  EXPECT_EQ(block.held_until.load(), 2);
  drain(w.waiting, gate);
  EXPECT_TRUE(!held(w.waiting));
  EXPECT_EQ(block.held_by.load(), 0);
  EXPECT_EQ(block.held_until.load(), 0);

  // A task that has set it before and is done is not waited for now.
  drain(w.setting);
  w.take();
  until_held(w.waiting);
  const uint64_t began = block.held_by.load();
  w.set(1);
  drain(w.waiting);
  EXPECT_EQ(began, 0);
}

TEST(Flag, IsNoWaitWhereItIsSetAlready) {
  World w;
  const uint64_t before = w.waiting.block().held[int(Hold::kEvent)].word.load();
  w.flag.set(1);
  w.take();
  drain(w.waiting);
  EXPECT_EQ(w.waiting.block().held[int(Hold::kEvent)].word.load(), before);
}

TEST(Flag, SaysWhetherATaskWouldWait) {
  Flag flag{0};
  Task task{};
  task.inline_words[0] = word(&flag);
  task.inline_words[2] = 3;
  const auto waits = [&](const npu_kernel& kernel, uint32_t now) {
    task.kernel = &kernel;
    flag.set(now);
    return waits_for_flag(task);
  };
  EXPECT_TRUE(waits(kTakeFlag, kDown));
  EXPECT_TRUE(!waits(kTakeFlag, kUp) && !waits(kTakeFlag, kDropped));
  EXPECT_TRUE(waits(kReachFlag, 2));
  EXPECT_TRUE(!waits(kReachFlag, 3) && !waits(kReachFlag, 4));
  EXPECT_TRUE(!waits(kSetFlag, 0) && !waits(kNothing, 0));
}

void expect_dropped(const Stream& waiter) {
  const auto error = waiter.error();
  EXPECT_TRUE(error != nullptr);
  const auto says = [&](const std::string& what) {
    return error->text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says("this interprocess event was dropped"));
  EXPECT_TRUE(says("npu:0 stream 1 had failed"));
}

TEST(Flag, WhoseLaterRecordIsReachedHasNotFailed) {
  World w;
  Gate gate;
  w.fail(gate);
  w.set(7, 7);
  drain(w.setting, gate);
  Stream another(0, 3, 0, StreamMode::kQueued);
  submit(another, kSetFlag, {word(&w.flag), 8, 8});
  w.reach(8);
  drain(w.waiting);
  EXPECT_TRUE(!w.waiting.failed());
  w.reach(7);  // what became of it is known
  drain(w.waiting);
  expect_dropped(w.waiting);

  w.flag.set(kDropped);
  submit(another, kSetFlag, {word(&w.flag), kUp, kDropped});
  submit(another, kTakeFlag, {word(&w.flag), 0});
  drain(another);
  EXPECT_TRUE(!another.failed());
}

// The task of an inline stream waits on the thread that launches it.
TEST(Flag, IsAWaitOfTheHostOnADirectStream) {
  constexpr int kReason = int(WaitReason::kEventSync);
  const DeviceBlock& block = segment().devices[0];
  World w;
  Stream direct(0, 3, 0, StreamMode::kInline);
  const uint64_t waits = block.waits[kReason].load();
  const uint64_t took = block.wait_ns[kReason].load();
  std::thread waiter([&] { submit(direct, kTakeFlag, {word(&w.flag), 0}); });
  while (!block.waiting[kReason].load()) std::this_thread::yield();
  EXPECT_EQ(direct.retired().value(), 0);
  w.set(1);
  waiter.join();
  EXPECT_EQ(block.waiting[kReason].load(), 0);
  EXPECT_EQ(block.waiting_from[kReason].load(), 0);
  EXPECT_EQ(block.waits[kReason].load(), waits + 1);
  EXPECT_TRUE(block.wait_ns[kReason].load() > took);
  EXPECT_TRUE(!held(direct));
}

}  // namespace
}  // namespace npu
