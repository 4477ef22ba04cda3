#include "csrc/taskqueue/stream.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/driver/registry.h"
#include "csrc/engine/blocking.h"
#include "csrc/engine/engine.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::drain;
using check::Gate;
using check::kAppend;
using check::kGate;
using check::submit;
using check::word;

constexpr uint64_t kSmall = 16;

TEST(Stream, RunsTasksInProgramOrder) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;

  for (uint64_t i = 0; i < 10'000; ++i)
    EXPECT_TRUE(submit(stream, kAppend, {word(&got), i}));
  drain(stream);

  EXPECT_EQ(got.size(), 10'000);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

// Of all threads, others may still be ending.
size_t threads_named(const std::string& wanted) {
  size_t count = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    count += name == wanted;
  }
  return count;
}

TEST(Stream, StartsItsLauncherWithTheFirstTask) {
  Stream stream(0, 91, 0, StreamMode::kQueued);  // no other's number
  EXPECT_TRUE(stream.idle());
  EXPECT_EQ(threads_named("npu0/s91"), 0);
  EXPECT_EQ(stream.block().thread.load(), 0);
  Gate gate;

  EXPECT_TRUE(submit(stream, kGate, {word(&gate)}));
  gate.wait_until_entered();

  EXPECT_EQ(threads_named("npu0/s91"), 1);
  EXPECT_EQ(stream.tail(), 1);
  EXPECT_TRUE(!stream.idle());
  const uint64_t launcher = stream.block().thread.load();
  EXPECT_TRUE(launcher != 0 && launcher != uint64_t(gettid()));
  gate.open();
}

TEST(Stream, HoldsTheCallerBackWhenItsRingIsFull) {
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got;
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
  for (uint64_t i = 1; i < kSmall; ++i)
    submit(stream, kAppend, {word(&got), i});
  EXPECT_EQ(stream.block().full_waits.load(), 0);

  std::thread producer([&] {
    for (uint64_t i = kSmall; i < 200; ++i)
      submit(stream, kAppend, {word(&got), i});
  });
  // The producer counts before it waits.
  while (stream.block().full_waits.load() == 0) std::this_thread::yield();
  EXPECT_EQ(stream.tail(), kSmall);
  gate.open();
  producer.join();
  drain(stream);

  EXPECT_EQ(got.size(), 199);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i + 1);
}

TEST(Stream, LosesNothingOfSeveralProducersWithAFullRing) {
  constexpr uint64_t kProducers = 4, kEach = 5'000;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got;
  std::vector<std::thread> producers;

  for (uint64_t id = 0; id < kProducers; ++id)
    producers.emplace_back([&, id] {
      for (uint64_t i = 0; i < kEach; ++i)
        submit(stream, kAppend, {word(&got), id * kEach + i});
    });
  for (auto& thread : producers) thread.join();
  drain(stream);

  EXPECT_EQ(got.size(), kProducers * kEach);
  std::vector<uint64_t> next(kProducers, 0);
  for (uint64_t value : got) EXPECT_EQ(value % kEach, next[value / kEach]++);
}

int run_sum(const npu_kernel*, const uint64_t* words, npu_failure*) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words[1]; ++i) sum += words[2 + i];
  reinterpret_cast<std::vector<uint64_t>*>(words[0])->push_back(sum);
  return NPU_OK;
}
constexpr npu_kernel kSum{run_sum, "test::sum", nullptr, 0};

TEST(Stream, CarriesTasksOfAnyLength) {
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got, wanted;

  for (uint64_t n : {0, 1, 33, 34, 62, 63, 1000, 34, 33, 60'000}) {
    Submission s;
    EXPECT_TRUE(stream.begin(uint32_t(n) + 2, s));
    s.task->kernel = &kSum;
    s.words[0] = word(&got);
    s.words[1] = n;
    for (uint64_t i = 0; i < n; ++i) s.words[2 + i] = i;
    EXPECT_EQ(s.task->marks.spilled, n + 2 > Task::kInlineWords);
    stream.commit(s);
    wanted.push_back(n ? n * (n - 1) / 2 : 0);
  }
  drain(stream);

  EXPECT_TRUE(got == wanted);
}

TEST(Stream, SpillsManyTasksFromManyThreads) {
  constexpr uint64_t kEach = 2'000;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got;
  auto produce = [&](uint64_t id) {
    for (uint64_t i = 0; i < kEach; ++i)
      submit(stream, kAppend, {word(&got), id}, uint32_t(36 + i % 90));
  };

  std::thread other(produce, 1);
  produce(2);
  other.join();
  drain(stream);

  EXPECT_EQ(got.size(), 2 * kEach);
}

TEST(Stream, WaitsForEachTaskWhileBlocking) {
  std::vector<uint64_t> got;
  Gate gate;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  stream.set_blocking(true);  // asks whether this thread's launches block
  set_thread_launch_blocking(true);
  for (uint64_t i = 0; i < 100; ++i) {
    submit(stream, kAppend, {word(&got), i});
    EXPECT_EQ(got.size(), i + 1);
    EXPECT_TRUE(stream.idle());
  }

  set_thread_launch_blocking(false);
  submit(stream, kGate, {word(&gate)});
  EXPECT_TRUE(!stream.idle());
  gate.open();
}

TEST(Stream, FinishesWhatIsQueuedWhenStopped) {
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint64_t i = 0; i < 1000; ++i) submit(stream, kAppend, {word(&got), i});

  stream.stop();

  EXPECT_EQ(got.size(), 1000);
  EXPECT_TRUE(stream.idle());
}

TEST(Stream, WorksAgainAfterAStop) {
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint64_t i = 0; i < 100; ++i) {
    submit(stream, kAppend, {word(&got), i});
    stream.stop();
    EXPECT_EQ(got.size(), i + 1);
  }
}

TEST(Stream, LosesNothingWhenStoppedWhileOthersSubmit) {
  constexpr uint64_t kEach = 2'000;
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kEach; ++i)
      submit(stream, kAppend, {word(&got), i});
  });

  for (int i = 0; i < 50; ++i) stream.stop();
  producer.join();
  submit(stream, kAppend, {word(&got), kEach});
  drain(stream);

  EXPECT_EQ(got.size(), kEach + 1);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

// With no work between them, every task finds the launcher asleep or about to.
TEST(Stream, WakesAParkedLauncherForEveryTask) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t parks = stream.block().parks.load();
    submit(stream, kAppend, {word(&got), i});
    drain(stream);
    if (i % 3 == 0)
      while (stream.block().parks.load() == parks) std::this_thread::yield();
  }
  EXPECT_EQ(got.size(), 300);
}

TEST(Stream, HoldsBackForAnotherStream) {
  Stream first(0, 0, 0, StreamMode::kQueued);
  Stream second(0, 1, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  Gate gate;
  submit(first, kGate, {word(&gate)});
  submit(first, kAppend, {word(&got), 1});
  const uint64_t number = first.tail();

  EXPECT_TRUE(second.wait_for(first, number));
  submit(second, kAppend, {word(&got), 2});
  gate.open();
  drain(second);

  EXPECT_EQ(got.size(), 2);
  EXPECT_EQ(got[0], 1);
}

}  // namespace
}  // namespace npu
