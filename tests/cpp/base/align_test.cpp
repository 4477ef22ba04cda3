#include "csrc/base/align.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Align, RoundsUpToAMultiple) {
  EXPECT_EQ(round_up(0, 512), 0);
  EXPECT_EQ(round_up(1, 512), 512);
  EXPECT_EQ(round_up(512, 512), 512);
  EXPECT_EQ(round_up(513, 512), 1024);
}

}  // namespace
}  // namespace npu
