// Which nodes of a graph wait for which.
#include "csrc/graph/dependencies.h"

#include "csrc/driver/kernel_flags.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

using check::side_stream;
using check::submit;

constexpr int64_t kSizes[] = {8}, kStrides[] = {1}, kEverySecond[] = {2};
// Of 8 floats each: word 0 is read, word 1 is written.
const npu_view kViews[] = {{kSizes, kStrides, 1, 4, 0, NPU_READ},
                           {kSizes, kStrides, 1, 4, 1, NPU_WRITE}};
const npu_view kStrided[] = {{kSizes, kEverySecond, 1, 4, 0, NPU_READ},
                             {kSizes, kEverySecond, 1, 4, 1, NPU_WRITE}};
const npu_kernel kCopy{check::run_nothing, "copy", kViews, 2};
const npu_kernel kStridedCopy{check::run_nothing, "strided copy", kStrided, 2};
const npu_kernel kUnknown{check::run_nothing, "unknown", kViews, 2,
                          kTouchesMore};
const npu_kernel kOnHost{check::run_nothing, "on the host", kViews, 2,
                         NPU_KERNEL_ON_HOST};
const npu_kernel kNoViews{check::run_nothing, "no views", nullptr, 0};

struct Step {
  const npu_kernel& kernel;
  uint64_t from = 0, to = 0;
};

Edges edges(std::initializer_list<Step> steps) {
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  for (const Step& step : steps)
    submit(stream, step.kernel, {step.from, step.to});
  graph.capture_end(stream);
  return dependencies(*graph.body());
}

// Places that are far apart.
constexpr uint64_t a = 0x1000, b = 0x2000, c = 0x3000, d = 0x4000;

TEST(Dependencies, AReadComesAfterTheWrite) {
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, b, c}}) == (Edges{{1}, {}}));
}
TEST(Dependencies, AWriteComesAfterTheReadsBeforeIt) {
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, a, c}, {kCopy, d, a}}) ==
              (Edges{{2}, {2}, {}}));
}
TEST(Dependencies, AWriteComesAfterTheWriteBeforeIt) {
  EXPECT_TRUE(edges({{kCopy, a, c}, {kCopy, b, c}}) == (Edges{{1}, {}}));
}
TEST(Dependencies, TwoReadsDoNotWaitForEachOther) {
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, a, c}}) == (Edges{{}, {}}));
}
TEST(Dependencies, OneByteInCommonIsEnough) {
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, b + 31, c}}) == (Edges{{1}, {}}));
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, b + 32, c}}) == (Edges{{}, {}}));
}
TEST(Dependencies, WhatLiesBetweenTheElementsIsNotTouched) {
  EXPECT_TRUE(edges({{kStridedCopy, a, b}, {kStridedCopy, c, b + 4}}) ==
              (Edges{{}, {}}));
  EXPECT_TRUE(edges({{kStridedCopy, a, b}, {kStridedCopy, c, b + 8}}) ==
              (Edges{{1}, {}}));
}
TEST(Dependencies, WhatFollowsFromTwoOthersIsLeftOut) {
  EXPECT_TRUE(edges({{kCopy, a, b}, {kCopy, b, b}, {kCopy, b, c}}) ==
              (Edges{{1}, {2}, {}}));
}
TEST(Dependencies, ADiamond) {
  EXPECT_TRUE(
      edges({{kCopy, a, b}, {kCopy, b, c}, {kCopy, b, d}, {kCopy, a, b}}) ==
      (Edges{{1, 2}, {3}, {3}, {}}));
}
// Nothing is known of what they touch besides.
TEST(Dependencies, AKernelThatTouchesMoreKeepsItsPlace) {
  for (const npu_kernel* kernel : {&kUnknown, &kOnHost, &kNoViews})
    EXPECT_TRUE(edges({{kCopy, a, b},
                       {kCopy, c, d},
                       {*kernel, 0x8000, 0x9000},
                       {kCopy, a, b},
                       {kCopy, c, d}}) == (Edges{{2}, {2}, {3, 4}, {}, {}}));
}
TEST(Dependencies, TheFirstAndTheLastNodeMayKeepTheirPlacesToo) {
  EXPECT_TRUE(edges({{kNoViews}, {kCopy, a, b}, {kCopy, c, d}, {kNoViews}}) ==
              (Edges{{1, 2}, {3}, {3}, {}}));
}

}  // namespace
}  // namespace npu
