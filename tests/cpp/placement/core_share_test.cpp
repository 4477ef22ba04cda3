// How many cores a kernel may use. The tests run in children, because the
// environment is read once.
#include "csrc/placement/core_share.h"

#include "csrc/placement/this_machine.h"

#include "csrc/taskqueue/this_thread.h"

#include <sched.h>
#include <stdlib.h>

#include <thread>

#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"

namespace npu {
namespace {

TEST(CoreShare, IsTheLeastOfWhatIsAllowed) {
  const auto ended = check::in_child([] {
    Stream mine(0, 40, 0, StreamMode::kQueued);
    set_core_limit(0, -1, 5);
    set_core_limit(0, 40, 3);
    EXPECT_EQ(core_share_here(8), 8);  // no stream's task
    std::thread([&] {
      EXPECT_TRUE(stream_of_this_thread() == nullptr);
      launch_on_this_thread(mine);
      EXPECT_TRUE(stream_of_this_thread() == &mine);
      EXPECT_EQ(core_share_here(8), 3);
      EXPECT_EQ(core_share_here(2), 2);
      set_core_limit(0, 40, 6);
      EXPECT_EQ(core_share_here(8), 5);
      set_core_limit(0, -1, 0);  // none
      EXPECT_EQ(core_share_here(8), 6);
      set_core_limit(0, 40, 1);
      EXPECT_EQ(core_share_here(8), 1);
      set_core_limit(0, 40, 0);
      EXPECT_EQ(core_share_here(8), 8);
      EXPECT_EQ(core_share_here(0), 1);  // at least
    }).join();
    EXPECT_TRUE(stream_of_this_thread() == nullptr);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(CoreShare, IsAtMostWhatTheEnvironmentAllows) {
  setenv("NPU_DISPATCH_CORES", "2", 1);
  const auto ended = check::in_child([] {
    return core_budget() == 2 && core_share_here(8) == 2 &&
                   core_share_here(1) == 1
               ? 0
               : 1;
  });
  setenv("NPU_DISPATCH_CORES", "0", 1);  // none is not possible
  const auto refused =
      check::in_child([] { return core_share_here(8) == 8 ? 0 : 1; });
  unsetenv("NPU_DISPATCH_CORES");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(refused.code, 0);
  EXPECT_TRUE(refused.err.find("NPU_DISPATCH_CORES") != std::string::npos);
}

TEST(CoreShare, CountsTheCoresThatTheProcessMayUse) {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&allowed));
}

}  // namespace
}  // namespace npu
