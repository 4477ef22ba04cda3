// Which memory a replay writes.
#include "csrc/graph/touched.h"

#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

using check::side_stream;
using check::submit;

int nothing(const npu_kernel*, const uint64_t*, npu_failure*) { return NPU_OK; }

constexpr int64_t kSizes[] = {2, 4}, kStrides[] = {8, 1};
const npu_view kViews[] = {
    {kSizes, kStrides, 2, 4, 0, NPU_READ},
    {kSizes, kStrides, 2, 4, 1, NPU_WRITE},
    {kSizes, kStrides, 2, 4, 2, NPU_READ | NPU_WRITE},
};
const npu_kernel kThree{nothing, "three", kViews, 3};
// From the first element to the last one: (8 + 3 + 1) * 4 bytes.
constexpr uint64_t kBytes = 48;

TEST(Written, RangesAreJoinedAndInOrder) {
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kThree, {0x9000, 0x5000, 0x3000});
  submit(stream, kThree, {0x9000, 0x3000 + kBytes, 0x7000});
  submit(stream, kThree, {0x9000, 0x5010, 0x7000});
  graph.capture_end(stream);

  const std::vector<ByteRange> found = written_bytes(*graph.body());

  EXPECT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].lo, 0x3000);
  EXPECT_EQ(found[0].hi, 0x3000 + 2 * kBytes);
  EXPECT_EQ(found[1].lo, 0x5000);
  EXPECT_EQ(found[1].hi, 0x5010 + kBytes);
  EXPECT_EQ(found[2].lo, 0x7000);
  EXPECT_EQ(found[2].hi, 0x7000 + kBytes);
}

TEST(Written, MeetsWhatHasAByteInCommon) {
  const std::vector<ByteRange> ranges{{10, 20}, {30, 40}};
  for (const auto& [lo, hi] : std::vector<std::pair<uintptr_t, uintptr_t>>{
           {0, 11}, {19, 20}, {19, 31}, {25, 31}, {10, 20}, {0, 50}, {39, 50}})
    EXPECT_TRUE(meet(ranges, lo, hi));
  for (const auto& [lo, hi] : std::vector<std::pair<uintptr_t, uintptr_t>>{
           {0, 10}, {20, 30}, {40, 50}, {0, 0}})
    EXPECT_TRUE(!meet(ranges, lo, hi));
  EXPECT_TRUE(!meet({}, 0, 50));
}

}  // namespace
}  // namespace npu
