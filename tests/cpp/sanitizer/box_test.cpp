#include "csrc/sanitizer/box.h"

#include <random>
#include <set>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

struct Shape {
  std::vector<int64_t> sizes, strides;  // in elements
  uint64_t address;
  uint16_t itemsize;

  Box box() const {
    const npu_view view{
        sizes.data(), strides.data(), uint16_t(sizes.size()), itemsize, 0,
        NPU_READ};
    return box_of(view, &address);
  }
  // One by one.
  std::set<uint64_t> bytes() const {
    std::set<uint64_t> all;
    std::vector<int64_t> at(sizes.size());
    for (const int64_t size : sizes)
      if (size == 0) return all;
    for (;;) {
      uint64_t start = address;
      for (size_t i = 0; i < at.size(); ++i)
        start += uint64_t(at[i] * strides[i]) * itemsize;
      for (int b = 0; b < itemsize; ++b) all.insert(start + uint64_t(b));
      size_t i = 0;
      while (i < at.size() && ++at[i] == sizes[i]) at[i++] = 0;
      if (i == at.size()) return all;
    }
  }
};

TEST(Box, OfAContiguousTensorIsEveryByte) {
  const Box box = Shape{{4, 5, 6}, {30, 6, 1}, 1000, 4}.box();

  EXPECT_TRUE(box.solid());
  EXPECT_EQ(box.lo, 1000);
  EXPECT_EQ(box.hi, 1480);
}

TEST(Box, OfARangeTakesItsLengthFromTheTask) {
  const npu_view view{nullptr, nullptr, 1, 2, 0, NPU_WRITE};
  const uint64_t words[] = {4096, 100};

  const Box box = box_of(view, words);

  EXPECT_EQ(box.hi - box.lo, 200);
}

TEST(Box, WithoutElementsMeetsNothing) {
  const Box empty = Shape{{0, 3}, {3, 1}, 100, 4}.box();
  const Box full = Shape{{64}, {1}, 64, 4}.box();

  EXPECT_TRUE(empty.empty());
  EXPECT_TRUE(!overlap(empty, full));
}

TEST(Box, WithGapsCoversItselfAndNoneThatIsElsewhere) {
  const Shape rows{{4, 5}, {10, 1}, 1000, 4};
  Shape moved = rows, shorter = rows, narrower = rows;
  moved.address += 4;
  shorter.sizes[0] = 3;
  narrower.sizes[1] = 4;
  EXPECT_TRUE(!rows.box().solid());
  EXPECT_TRUE(covers(rows.box(), rows.box()));
  for (const Shape& other : {moved, narrower}) {
    EXPECT_TRUE(!covers(other.box(), rows.box()));
    EXPECT_TRUE(!covers(rows.box(), other.box()));
  }
  EXPECT_TRUE(!covers(shorter.box(), rows.box()));
}

TEST(Box, OverlapAgreesWithCountingEveryByte) {
  std::mt19937_64 random(7);
  const auto pick = [&](int n) { return int64_t(random() % uint64_t(n)); };
  int met = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto shape = [&] {
      Shape s{{}, {}, uint64_t(1000 + pick(40)), uint16_t(1 << pick(3))};
      const int64_t ndim = pick(4);
      for (int64_t i = 0; i < ndim; ++i) {
        s.sizes.push_back(pick(5));
        s.strides.push_back(pick(9));
      }
      return s;
    };
    const Shape one = shape(), two = shape();
    const auto a = one.bytes(), b = two.bytes();
    bool meet = false;
    for (const uint64_t byte : a) meet |= b.contains(byte);
    met += meet;

    EXPECT_EQ(overlap(one.box(), two.box()), meet);
    EXPECT_EQ(overlap(two.box(), one.box()), meet);
    if (covers(one.box(), two.box()))
      for (const uint64_t byte : b) EXPECT_TRUE(a.contains(byte));
  }
  EXPECT_TRUE(met > 2000);
  EXPECT_TRUE(met < 18'000);
}

}  // namespace
}  // namespace npu
