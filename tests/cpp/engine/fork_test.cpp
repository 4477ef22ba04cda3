// Processes that fork before and after the engine has begun.
#include <signal.h>
#include <string.h>

#include "csrc/engine/engine.h"
#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::in_child;
using check::kAppend;
using check::kNothing;
using check::submit;
using check::word;

int append_and_wait(uint64_t n) {
  std::vector<uint64_t> got;
  for (uint64_t i = 0; i < n; ++i)
    submit(current_stream(0), kAppend, {word(&got), i});
  synchronize_device(0, WaitReason::kDeviceSync);
  return got.size() == n ? 0 : 1;
}

TEST(Fork, BeforeTheFirstStreamLeavesTheChildFree) {
  const auto ended = in_child([] {
    const auto inner = in_child([] { return append_and_wait(100); });
    return append_and_wait(100) + inner.code;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Fork, AfterTheFirstStreamMakesTheChildRefuseWork) {
  const auto ended = in_child([] {
    submit(current_stream(0), kNothing, {});
    check::wait_until_others_sleep();
    const auto inner = in_child([] {
      if (!in_bad_fork()) return 1;
      Submission s;
      return current_stream(0).begin(0, s) ? 2 : 0;
    });
    return inner.code;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Fork, LetsAChildThatDoesNoWorkExitWithoutAHang) {
  const auto ended = in_child([] {
    static check::Gate gate;
    submit(current_stream(0), check::kGate, {word(&gate)});
    gate.wait_until_entered();
    check::wait_until_others_sleep();
    const auto inner = in_child([] { return 7; });
    gate.open();
    return inner.code == 7 ? append_and_wait(10) : 1;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Fork, KeepsTheParentsSegmentFromTheChild) {
  const auto ended = in_child([] {
    submit(current_stream(0), kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    StreamBlock& block = current_stream(0).block();
    check::wait_until_others_sleep();
    const auto inner = in_child([&block] {
      block.retired.store(1000, std::memory_order_relaxed);
      return segment_path().empty() ? 0 : 1;
    });
    if (inner.code) return 1;
    if (access(segment_path().c_str(), F_OK)) return 2;
    return block.retired.load(std::memory_order_relaxed) == 1 ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace npu
