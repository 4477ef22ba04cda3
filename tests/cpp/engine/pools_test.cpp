// Which streams the pools hand out, and which settings reach all of them. Each
// test runs in a process of its own, because pools and switches belong to the
// process.
#include "csrc/engine/stream_pools.h"

#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/engine/blocking.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/profiling.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/profile.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/launch_blocking.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::kNothing;
using check::submit;

// Failures in the child are written to stderr.
void in_a_process(const std::function<void()>& body) {
  const auto ended = check::in_child([&] {
    body();
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

std::string refusal() {
  try {
    next_stream(0, StreamPool::kNormal);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST(Pools, ThatAreStrictHandOutEachStreamOnce) {
  in_a_process([] {
    EXPECT_TRUE(!strict_pools());
    set_strict_pools(true);
    EXPECT_TRUE(strict_pools());
    std::set<Stream*> seen;
    for (int i = 0; i < kStreamsPerPool; ++i)
      seen.insert(&next_stream(0, StreamPool::kNormal));
    EXPECT_EQ(seen.size(), kStreamsPerPool);
    EXPECT_TRUE(refusal().find("all 32 streams") != std::string::npos);
    next_stream(0, StreamPool::kHigh);  // of another pool
    set_strict_pools(false);
    EXPECT_EQ(refusal(), "");
  });
}

TEST(Pools, HaveAsManyStreamsAsTheEnvironmentSays) {
  in_a_process([] {
    setenv("STREAMS_PER_DEVICE", "2", 1);
    Stream& first = next_stream(0, StreamPool::kNormal);
    Stream& second = next_stream(0, StreamPool::kNormal);
    EXPECT_TRUE(&first != &second);
    EXPECT_TRUE(&next_stream(0, StreamPool::kNormal) == &first);
    EXPECT_TRUE(find_stream(0, second.id()) == &second);
    EXPECT_TRUE(find_stream(0, second.id() + 1) == nullptr);
    EXPECT_TRUE(find_stream(0, int64_t(kOwnedPool) << 5 | 31) != nullptr);
    set_strict_pools(true);
    EXPECT_TRUE(refusal().find("all 2 streams") != std::string::npos);
  });
}

TEST(Pools, GiveAnOwnerAStreamOfItsOwn) {
  in_a_process([] {
    std::vector<Stream*> owned;
    std::set<Stream*> seen;
    while (Stream* stream = take_owned_stream(0)) {
      owned.push_back(stream);
      seen.insert(stream);
      EXPECT_TRUE(StreamPool(stream->id() >> 5) == kOwnedPool);
    }
    EXPECT_TRUE(owned.size() == 32 && seen.size() == 32);
    EXPECT_TRUE(give_owned_stream(*owned[7]));
    EXPECT_TRUE(!give_owned_stream(*owned[7]));
    EXPECT_TRUE(take_owned_stream(0) == owned[7]);
    EXPECT_TRUE(take_owned_stream(0) == nullptr);
    EXPECT_TRUE(!give_owned_stream(next_stream(0, StreamPool::kNormal)));
  });
}

struct Counted final : Observer {
  int tasks = 0;
  bool submitted(Stream&, uint64_t, const Task&) override {
    ++tasks;
    return true;
  }
};

TEST(Engine, TellsAnObserverOfPresentAndFutureStreams) {
  in_a_process([] {
    Counted counted;
    Stream& present = current_stream(0);
    install_observer(&counted);
    Stream& future = next_stream(0, StreamPool::kNormal);
    submit(present, kNothing, {});
    submit(future, kNothing, {});
    EXPECT_EQ(counted.tasks, 2);
    synchronize_device(0, WaitReason::kDeviceSync);
    install_observer(nullptr);
    EXPECT_TRUE(observer() == nullptr);
    submit(present, kNothing, {});
    submit(next_stream(0, StreamPool::kHigh), kNothing, {});
    EXPECT_EQ(counted.tasks, 2);
  });
}

TEST(Engine, ProfilesPresentAndFutureStreamsFromItsBeginToItsEnd) {
  in_a_process([] {
    Stream& present = current_stream(0);
    submit(present, kNothing, {});
    start_profile();
    Stream& future = next_stream(0, StreamPool::kNormal);
    for (int i = 0; i < 3; ++i) submit(present, kNothing, {});
    submit(future, kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    EXPECT_EQ(stop_profile().size(), 4);
    submit(present, kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    EXPECT_EQ(stop_profile().size(), 0);

    // Neither the records nor the scopes of an earlier profile are part of the
    // next one.
    enter_scope(Scope::kOperator, 7);
    present.set_profiled(true);
    submit(present, kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    start_profile();
    submit(present, kNothing, {});
    enter_scope(Scope::kRange, 8);
    submit(present, kNothing, {});
    leave_scope(Scope::kRange);
    leave_scope(Scope::kRange);  // it was entered before the profile
    synchronize_device(0, WaitReason::kDeviceSync);
    { RunsOnCaller here(present, "test::here"); }
    const auto runs = stop_profile();
    EXPECT_EQ(runs.size(), 3);
    EXPECT_TRUE(runs[0].launch.op == 0 && runs[0].launch.range == 0);
    EXPECT_TRUE(runs[1].launch.op == 0 && runs[1].launch.range == 8);
    EXPECT_TRUE(runs[1].launch.thread == gettid());
    EXPECT_TRUE(runs[2].launch.thread == 0 && runs[2].launch.range == 0);
    EXPECT_EQ(std::string(runs[2].name), "test::here");
    EXPECT_TRUE(runs[2].started <= runs[2].ended);
    EXPECT_TRUE(runs[0].device == 0 && runs[0].stream == present.id());
  });
}

TEST(LaunchBlocking, IsTakenFromEachOfItsVariables) {
  const std::pair<const char*, const char*> blocking[] = {
      {"NPU_LAUNCH_BLOCKING", "1"},
      {"ASCEND_LAUNCH_BLOCKING", "1"},
      {"TASK_QUEUE_ENABLE", "0"}};
  for (const auto& [name, value] : blocking)
    in_a_process([name, value] {
      setenv(name, value, 1);
      EXPECT_TRUE(launch_blocks());
      std::vector<uint64_t> got;
      submit(current_stream(0), check::kAppend, {check::word(&got), 1});
      EXPECT_EQ(got.size(), 1);
    });
  in_a_process([] {
    setenv("NPU_LAUNCH_BLOCKING", "0", 1);
    setenv("TASK_QUEUE_ENABLE", "1", 1);
    EXPECT_TRUE(!launch_blocks());
  });
}

TEST(LaunchBlocking, OfTwoThreadsEndsWithTheSecond) {
  in_a_process([] {
    Stream& stream = current_stream(0);
    set_thread_launch_blocking(true);
    std::vector<uint64_t> got;
    std::thread([&] {
      set_thread_launch_blocking(true);
      set_thread_launch_blocking(false);
    }).join();
    submit(stream, check::kAppend, {check::word(&got), 1});
    EXPECT_EQ(got.size(), 1);
    EXPECT_EQ(stream.block().bypassed[int(Bypass::kLaunchBlocking)].load(), 1);
    set_thread_launch_blocking(false);
    submit(stream, kNothing, {});
    EXPECT_EQ(stream.block().bypassed[int(Bypass::kLaunchBlocking)].load(), 1);
  });
}

}  // namespace
}  // namespace npu
