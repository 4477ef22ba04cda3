// Pools of graphs in a process of its own, with two devices.
#include <stdlib.h>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/lifetime.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::in_child;
using check::join;
using check::refused;
using check::submit;

// The number 0 stands for a new pool.
TEST(GraphPool, IsCountedFromOne) {
  const auto ended =
      in_child([] { return new_pool() == 1 && new_pool() == 2 ? 0 : 1; });
  EXPECT_EQ(ended.code, 0);
}

TEST(GraphPool, IsOfTheDeviceOfItsStream) {
  setenv("NPU_DISPATCH_DEVICES", "2", 1);
  const auto ended = in_child([] {
    Stream& stream = next_stream(1, StreamPool::kNormal);
    Stream& side = next_stream(1, StreamPool::kNormal);
    Graph graph;
    for (const bool joined : {false, true}) {
      const uint64_t pool = new_pool();
      graph.capture_begin(stream, pool, CaptureMode::kGlobal);
      if (pool_users(1, pool) != 1 || pool_users(0, pool) != 0) return 1;
      join(stream, side);
      submit(side, check::kNothing, {});
      if (joined) join(side, stream);
      if (refused([&] { graph.capture_end(stream); }).empty() != joined)
        return 2;
      if (pool_users(1, pool) != joined) return 3;
      graph.reset();
      if (pool_users(1, pool) != 0) return 4;
    }
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    const uint64_t pool = graph.pool();
    graph.reset();  // in the middle of the capture
    return pool_users(1, pool);
  });
  unsetenv("NPU_DISPATCH_DEVICES");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace npu
