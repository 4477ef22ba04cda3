#include "csrc/sanitizer/box.h"

#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

struct Shape {
  std::vector<int64_t> sizes, strides;  // in elements
  uint64_t address;
  uint32_t itemsize;

  Box box() const {
    const npu_view view{
        sizes.data(), strides.data(), uint32_t(sizes.size()), itemsize, 0,
        NPU_READ};
    return box_of(view, &address);
  }
  // All bytes, one by one.
  std::set<uint64_t> bytes() const {
    std::set<uint64_t> all;
    std::vector<int64_t> at(sizes.size());
    for (const int64_t size : sizes)
      if (size == 0) return all;
    for (;;) {
      uint64_t start = address;
      for (size_t i = 0; i < at.size(); ++i)
        start += uint64_t(at[i] * strides[i]) * itemsize;
      for (uint32_t b = 0; b < itemsize; ++b) all.insert(start + uint64_t(b));
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

// Whatever the order of its dimensions, and with some of size one or stride 0.
TEST(Box, OfPermutedDimensionsIsTheSame) {
  for (const Shape& shape :
       {Shape{{4, 5}, {1, 4}, 1000, 4}, Shape{{5, 4, 6}, {24, 1, 4}, 1000, 4},
        Shape{{4, 1, 5}, {1, 77, 4}, 1000, 4},
        Shape{{4, 1, 5}, {5, 99, 1}, 1000, 4}, Shape{{1, 9}, {1, 1}, 1000, 4},
        Shape{{3, 4, 5}, {0, 1, 4}, 1000, 4}}) {
    const Box box = shape.box();
    EXPECT_TRUE(box.solid());
    EXPECT_EQ(box.hi - box.lo, shape.bytes().size());
  }
  const Box gaps = Shape{{5, 4, 6}, {2, 100, 10}, 1000, 4}.box();
  EXPECT_EQ(gaps.dims.size(), 2);  // 5 by 2 and 6 by 10 are one row
  EXPECT_TRUE(gaps.dims[0].stride == 400 && gaps.dims[0].size == 4);
  EXPECT_TRUE(gaps.dims[1].stride == 8 && gaps.dims[1].size == 30);
  EXPECT_EQ(gaps.item, 4);
  EXPECT_EQ(gaps.hi - gaps.lo, 3 * 400 + 29 * 8 + 4);
}

// Every second of 14 qubits has a fixed value.
Shape qubits(std::vector<int64_t> fixed) {
  Shape shape{{}, {}, 1000, 4};
  for (int64_t place = 0; place < 14; ++place) {
    const int64_t stride = int64_t{1} << (13 - place);
    if (place % 2 && size_t(place / 2) < fixed.size()) {
      shape.address += uint64_t(fixed[size_t(place / 2)] * stride * 4);
    } else {
      shape.sizes.push_back(2);
      shape.strides.push_back(stride);
    }
  }
  return shape;
}

TEST(Box, OfManyDimensionsMeetsWhatHasItsElements) {
  const Box zero = qubits({0, 0, 0, 0, 0, 0, 0}).box();
  const Box solid = Shape{{1 << 14}, {1}, 1000, 4}.box();
  EXPECT_EQ(zero.dims.size(), 7);
  EXPECT_EQ(zero.hi,
            1 + *std::prev(qubits({0, 0, 0, 0, 0, 0, 0}).bytes().end()));
  EXPECT_EQ(overlap(zero, zero), Answer::kYes);
  EXPECT_EQ(overlap(zero, solid), Answer::kYes);
  EXPECT_EQ(overlap(zero, qubits({0, 0, 0}).box()), Answer::kYes);
  EXPECT_EQ(overlap(zero, qubits({0, 0, 0, 0, 0, 0, 1}).box()), Answer::kNo);
  EXPECT_EQ(overlap(zero, qubits({1}).box()), Answer::kNo);
  EXPECT_TRUE(covers(solid, zero) && covers(zero, zero));
  EXPECT_TRUE(!covers(zero, solid) && !covers(qubits({0, 0}).box(), zero));
}

// The steps to an answer do not double with each dimension.
TEST(Box, OfThirtyDimensionsThatNestIsKnown) {
  Shape even{{}, {}, 1 << 20, 1}, odd = even;
  for (int64_t i = 1; i < 60; i += 2) {
    even.sizes.push_back(2);
    odd.sizes.push_back(2);
    even.strides.push_back(int64_t{1} << i);
    odd.strides.push_back(i == 1 ? 1 : int64_t{1} << i);
  }
  odd.address += 4;  // 4 and 5: no even dimension has a 4
  EXPECT_EQ(overlap(even.box(), odd.box()), Answer::kNo);
  EXPECT_EQ(overlap(odd.box(), even.box()), Answer::kNo);
  odd.address += 4;
  EXPECT_EQ(overlap(even.box(), odd.box()), Answer::kYes);
}

// A sum of some of these numbers is sought, and none has a divisor.
TEST(Box, OfManyStridesThatDivideNoOtherIsUnknown) {
  std::mt19937_64 random(3);
  const auto shape = [&] {
    Shape s{{}, {}, 1000, 1};
    for (int i = 0; i < 32; ++i) {
      s.sizes.push_back(2);
      s.strides.push_back(1 + int64_t(random() % (uint64_t{1} << 50)));
    }
    return s;
  };
  const Shape one = shape();
  Shape two = shape();
  two.address += uint64_t{1} << 50;
  EXPECT_EQ(overlap(one.box(), two.box()), Answer::kUnknown);
  EXPECT_EQ(overlap(two.box(), one.box()), Answer::kUnknown);
}

TEST(Box, OfWindowsThatShareElementsIsOneRun) {
  const Box box = Shape{{10, 4, 3}, {1, 1, 5}, 1000, 4}.box();
  EXPECT_TRUE(box.solid());
  EXPECT_EQ(box.hi - box.lo, (9 + 3 + 10 + 1) * 4);
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
  EXPECT_EQ(overlap(empty, full), Answer::kNo);
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

// As many different strides as two boxes can have.
TEST(Box, OverlapAgreesWithCountingForTwelveStrides) {
  std::mt19937_64 random(11);
  int met = 0;
  for (int round = 0; round < 300; ++round) {
    const auto shape = [&](int64_t first) {
      Shape s{{}, {}, 1000 + random() % 64, 1};
      for (int64_t i = 0; i < 6; ++i) {
        s.sizes.push_back(2);
        s.strides.push_back(first + 10 * i + int64_t(random() % 2) * 4);
      }
      return s;
    };
    const Shape one = shape(2), two = shape(3);
    const auto a = one.bytes(), b = two.bytes();
    bool meet = false;
    for (const uint64_t byte : a) meet |= b.contains(byte);
    met += meet;
    const Answer answer = meet ? Answer::kYes : Answer::kNo;
    EXPECT_EQ(overlap(one.box(), two.box()), answer);
    EXPECT_EQ(overlap(two.box(), one.box()), answer);
  }
  EXPECT_TRUE(met > 100);
}

TEST(Box, OverlapAgreesWithCountingEveryByte) {
  std::mt19937_64 random(7);
  const auto pick = [&](int n) { return int64_t(random() % uint64_t(n)); };
  int met = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto shape = [&] {
      Shape s{{}, {}, uint64_t(1000 + pick(40)), uint32_t(1 << pick(3))};
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

    const Answer answer = meet ? Answer::kYes : Answer::kNo;
    EXPECT_EQ(overlap(one.box(), two.box()), answer);
    EXPECT_EQ(overlap(two.box(), one.box()), answer);
    if (covers(one.box(), two.box()))
      for (const uint64_t byte : b) EXPECT_TRUE(a.contains(byte));
  }
  EXPECT_TRUE(met > 2000);
  EXPECT_TRUE(met < 18'000);
}

}  // namespace
}  // namespace npu
