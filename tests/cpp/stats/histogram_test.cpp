#include "csrc/stats/layout.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Histogram, PutsAValueIntoTheBucketOfItsLogarithm) {
  Log2Histogram<8> h{};
  for (uint64_t value : {0, 1, 2, 3, 4, 7, 8}) h.add(value);

  EXPECT_EQ(h.count.load(), 7);
  EXPECT_EQ(h.sum.load(), 25);
  for (auto [bucket, count] :
       {std::pair{0, 1}, {1, 1}, {2, 2}, {3, 2}, {4, 1}, {5, 0}})
    EXPECT_EQ(h.bucket[bucket].load(), count);
}

TEST(Histogram, PutsWhateverIsTooLargeIntoTheLastBucket) {
  Log2Histogram<8> h{};
  h.add(~uint64_t{0});
  h.add(128);

  EXPECT_EQ(h.bucket[7].load(), 2);
}

TEST(Layout, KeepsProducersAndLauncherOnDifferentLines) {
  const auto line = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) / kCacheLine;
  };
  const StreamBlock block{};
  EXPECT_TRUE(line(&block.tail) != line(&block.thread));
  EXPECT_TRUE(line(&block.retired) != line(&block.tail));
  EXPECT_TRUE(line(&block.retired) != line(&block.full_waits));
}

}  // namespace
}  // namespace npu
