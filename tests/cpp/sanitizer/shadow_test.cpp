// What is known about memory: which bytes a view touches, who touched them
// last, and what becomes of that when memory is handed out, split and joined.
#include "csrc/sanitizer/shadow.h"
#include "csrc/sanitizer/box.h"
#include "csrc/sanitizer/clock.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

Access access(uint32_t stream, uint64_t number, uintptr_t lo, uintptr_t hi,
              bool writes = true) {
  Access a{};
  a.box.lo = lo;
  a.box.hi = hi;
  a.box.item = hi - lo;
  a.op = "test";
  a.stream = stream;
  a.number = number;
  a.writes = writes;
  return a;
}

Numbers numbers(const Region& region) {
  Numbers found;
  for (const Access& a : region.accesses) found.push_back(a.number);
  return found;
}

VectorClock at(size_t stream, uint64_t number) {
  VectorClock clock;
  clock.raise(stream, number);
  return clock;
}
const VectorClock kNothing;

TEST(Region, KeepsWhatNothingOrdersAndWhatIsNotCovered) {
  Region region;
  region.add(access(1, 5, 100, 200), kNothing, kNothing);
  region.add(access(2, 3, 100, 200), kNothing, kNothing);  // unordered
  EXPECT_EQ(numbers(region), Numbers({5, 3}));
  EXPECT_TRUE(!region.one_stream);
  region.add(access(2, 4, 100, 150), kNothing, kNothing);  // covers half of it
  EXPECT_EQ(numbers(region), Numbers({5, 3, 4}));
  region.add(access(2, 6, 100, 200), kNothing, kNothing);  // covers its own
  EXPECT_EQ(numbers(region), Numbers({5, 6}));
  region.add(access(2, 7, 100, 200), at(1, 4), kNothing);  // 5 comes after 4
  EXPECT_EQ(numbers(region), Numbers({5, 7}));
  region.add(access(2, 8, 100, 200), at(1, 5), kNothing);
  EXPECT_EQ(numbers(region), Numbers({8}));
}

// A read replaces only reads: later reads are unordered with an old write all
// the same.
TEST(Region, KeepsAWriteBehindARead) {
  Region region;
  region.add(access(1, 1, 0, 8), kNothing, kNothing);
  region.add(access(1, 2, 0, 8, false), kNothing, kNothing);
  EXPECT_EQ(numbers(region), Numbers({1, 2}));
  region.add(access(1, 3, 0, 8, false), kNothing, kNothing);
  EXPECT_EQ(numbers(region), Numbers({1, 3}));
  region.add(access(1, 4, 0, 8), kNothing, kNothing);
  EXPECT_EQ(numbers(region), Numbers({4}));
}

TEST(Region, ForgetsWhatTheHostHasWaitedFor) {
  Region region;
  region.add(access(1, 5, 0, 8), kNothing, kNothing);
  region.add(access(2, 9, 0, 4), kNothing, at(1, 4));
  EXPECT_EQ(numbers(region), Numbers({5, 9}));
  region.add(access(2, 10, 4, 8), kNothing, at(1, 5));
  EXPECT_EQ(numbers(region), Numbers({9, 10}));
}

TEST(Region, KnowsWhetherOnlyOneStreamTouchesIt) {
  Region region;
  region.add(access(3, 1, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(region.one_stream && region.stream == 3);
  region.add(access(3, 2, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(region.one_stream);
  region.add(access(4, 1, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(!region.one_stream);
  region.add(access(4, 2, 0, 8), at(3, 2), kNothing);  // only its own are left
  region.add(access(4, 3, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(region.one_stream && region.stream == 4);
  region.add(access(3, 3, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(!region.one_stream);
  region.accesses.clear();
  region.add(access(5, 1, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(region.one_stream && region.stream == 5);
}

TEST(Region, ForgetsAQuarterWhenItIsFull) {
  Region region;
  for (uint64_t i = 0; i < 96; ++i)
    region.add(access(uint32_t(i), i + 1, 0, 8), kNothing, kNothing);
  EXPECT_EQ(region.accesses.size(), 96);
  region.add(access(96, 97, 0, 8), kNothing, kNothing);
  EXPECT_EQ(region.accesses.size(), 73);
  EXPECT_EQ(region.accesses.front().number, 25);
  EXPECT_EQ(region.accesses.back().number, 97);
}

TEST(Shadow, FindsTheRegionAroundAnAddress) {
  Shadow shadow;
  EXPECT_TRUE(shadow.find(4096) == nullptr);
  shadow.give_out(4096, 512);
  shadow.give_out(5120, 512);
  for (const uintptr_t none : {4095, 4608, 5632})
    EXPECT_TRUE(shadow.find(none) == nullptr);
  for (const auto& [at, lo] :
       {std::pair{4096, 4096}, {4600, 4096}, {5631, 5120}})
    EXPECT_EQ(shadow.find(uintptr_t(at))->lo, lo);
  shadow.clear();
  EXPECT_TRUE(shadow.find(4096) == nullptr);
}

// Two regions of which the second begins in the first one's cached place.
TEST(Shadow, FindsBothOfTwoThatShareAPlaceInTheCache) {
  constexpr uintptr_t kApart = 512 * 4096;
  Shadow shadow;
  shadow.give_out(4096, 512);
  shadow.give_out(4096 + kApart, 512);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(shadow.find(4096)->lo, 4096);
    EXPECT_EQ(shadow.find(4096 + kApart)->lo, 4096 + kApart);
  }
  shadow.forget(4096 + kApart, 512);
  EXPECT_TRUE(shadow.find(4096 + kApart) == nullptr);
  EXPECT_EQ(shadow.find(4096)->hi, 4608);
}

TEST(Shadow, NamesNoCallForMemoryThatNobodyTookOrFreedBefore) {
  Shadow shadow;
  const Region& fresh = shadow.give_out(4096, 512);
  for (const uint32_t site : {fresh.alloc_site, fresh.free_site,
                              fresh.old_alloc_site, fresh.old_free_site})
    EXPECT_EQ(site, 0);
  EXPECT_TRUE(fresh.live && !fresh.pinned && !fresh.captured);
}

TEST(Shadow, GivesTheSameBlockOutAgainAsItWas) {
  Shadow shadow;
  Region& first = shadow.give_out(4096, 512);
  first.accesses.push_back(access(1, 1, 4096, 4608));
  first.alloc_site = 7;
  first.free_site = 8;
  first.live = false;
  first.recorded = {2};

  Region& again = shadow.give_out(4096, 512);

  EXPECT_TRUE(&again == &first);
  EXPECT_TRUE(again.live && again.recorded.empty());
  EXPECT_TRUE(again.old_alloc_site == 7 && again.old_free_site == 8);
  EXPECT_EQ(again.accesses.size(), 1);
  EXPECT_TRUE(again.accesses[0].stale);
}

TEST(Shadow, CarvesABlockOutOfAnother) {
  Shadow shadow;
  Region& whole = shadow.give_out(4096, 1536);
  whole.alloc_site = 7;
  whole.free_site = 8;
  whole.live = false;
  whole.accesses.push_back(access(1, 1, 4096, 4200));  // of the left third
  whole.accesses.push_back(access(1, 2, 4700, 4800));
  whole.accesses.push_back(access(1, 3, 5120, 5632));  // of the right one
  whole.accesses.push_back(access(2, 4, 4096, 5632));
  whole.accesses.push_back(access(3, 5, 4500, 4608));  // touches the middle

  const Region& middle = shadow.give_out(4608, 512);

  EXPECT_TRUE(middle.live);
  EXPECT_TRUE(middle.lo == 4608 && middle.hi == 5120);
  EXPECT_TRUE(middle.old_alloc_site == 7 && middle.old_free_site == 8);
  EXPECT_EQ(numbers(middle), Numbers({2, 4}));
  EXPECT_TRUE(!middle.one_stream);
  for (const Access& a : middle.accesses) EXPECT_TRUE(a.stale);
  const Region& left = *shadow.find(4096);
  EXPECT_TRUE(left.lo == 4096 && left.hi == 4608 && !left.live);
  EXPECT_EQ(numbers(left), Numbers({1, 4, 5}));
  EXPECT_TRUE(shadow.find(4607) == &left);
  const Region& right = *shadow.find(5120);
  EXPECT_TRUE(right.lo == 5120 && right.hi == 5632 && !right.live);
  EXPECT_EQ(numbers(right), Numbers({3, 4}));
}

TEST(Shadow, KnowsWhoseStreamEachPartOfACarvedBlockIs) {
  Shadow shadow;
  Region& whole = shadow.give_out(4096, 1024);
  whole.add(access(1, 1, 4096, 4608), kNothing, kNothing);
  whole.add(access(2, 1, 4608, 5120), kNothing, kNothing);
  EXPECT_TRUE(!whole.one_stream);

  const Region& right = shadow.give_out(4608, 512);

  EXPECT_TRUE(right.one_stream && right.stream == 2);
  const Region& left = *shadow.find(4096);
  EXPECT_TRUE(left.one_stream && left.stream == 1);
}

TEST(Shadow, KnowsNothingOfWhoseAPartOfABlockWas) {
  Shadow shadow;
  Region& whole = shadow.give_out(4096, 1024);
  whole.owner = 3;
  whole.pinned = true;
  whole.captured = 9;
  whole.alloc_site = 7;
  whole.free_site = 8;
  whole.overwritten = std::make_shared<Access>();

  const Region& part = shadow.give_out(4096, 512);

  EXPECT_EQ(part.owner, 0);
  EXPECT_TRUE(!part.pinned && !part.captured && !part.overwritten);
  EXPECT_TRUE(part.alloc_site == 0 && part.free_site == 0);
}

TEST(Shadow, JoinsBlocksAndKeepsEachAccessOnce) {
  Shadow shadow;
  shadow.give_out(5632, 512);  // begins where the others end
  for (const uintptr_t lo : {4096, 4608, 5120}) {
    Region& region = shadow.give_out(lo, 512);
    region.alloc_site = uint32_t(lo);
    region.free_site = uint32_t(lo + 1);
    region.accesses.push_back(access(1, 1, 4096, 5632));
    region.accesses.push_back(access(1, 10 + lo, lo, lo + 512));
  }

  const Region& joined = shadow.give_out(4096, 1536);

  EXPECT_TRUE(joined.lo == 4096 && joined.hi == 5632);
  EXPECT_EQ(numbers(joined), Numbers({1, 4106, 4618, 5130}));
  EXPECT_TRUE(joined.one_stream && joined.stream == 1);
  EXPECT_EQ(joined.old_alloc_site, 5120);  // the last one's
  EXPECT_EQ(joined.old_free_site, 5121);
  EXPECT_EQ(shadow.find(5632)->lo, 5632);
  EXPECT_TRUE(shadow.find(5000) == &joined && shadow.find(4608) == &joined);
}

// Accesses that differ in one member are different.
TEST(Shadow, TellsAccessesApartByAllThatNamesThem) {
  Shadow shadow;
  Access all[] = {access(1, 1, 4096, 4200), access(2, 1, 4096, 4200),
                  access(1, 2, 4096, 4200), access(1, 1, 4100, 4200),
                  access(1, 1, 4096, 4300), access(1, 1, 4096, 4200)};
  all[5].argument = 1;
  for (const uintptr_t lo : {4096, 4608}) {
    Region& region = shadow.give_out(lo, 512);
    for (const Access& a : all) region.accesses.push_back(a);
  }
  EXPECT_EQ(shadow.give_out(4096, 1024).accesses.size(), std::size(all));
}

TEST(Shadow, KeepsTheNewestOfManyWhenBlocksAreJoined) {
  Shadow shadow;
  for (uint64_t block = 0; block < 2; ++block) {
    Region& region = shadow.give_out(4096 + 512 * block, 512);
    for (uint64_t i = 0; i < 60; ++i)
      region.accesses.push_back(
          access(1, 1 + 2 * i + block, 4096 + 512 * block, 4608 + 512 * block));
  }
  const Region& joined = shadow.give_out(4096, 1024);
  EXPECT_EQ(joined.accesses.size(), 96);
  EXPECT_EQ(joined.accesses.front().number, 25);
  EXPECT_EQ(joined.accesses.back().number, 120);
}

TEST(Shadow, ForgetsWhatTouchesARange) {
  Shadow shadow;
  const auto left = [&] {
    Numbers found;
    for (const uintptr_t lo : {4096, 4608, 5120, 5632})
      if (shadow.find(lo)) found.push_back(lo);
    return found;
  };
  for (const uintptr_t lo : {4096, 4608, 5120, 5632}) shadow.give_out(lo, 512);
  shadow.forget(4700, 800);  // begins and ends inside of a block
  EXPECT_EQ(left(), Numbers({4096, 5632}));
  shadow.give_out(4608, 512);
  shadow.forget(4096, 512);  // ends where the next begins
  EXPECT_EQ(left(), Numbers({4608, 5632}));
}

TEST(Shadow, CountsTheBytesThatItHolds) {
  const int64_t before = shadow_bytes.load();
  {
    Shadow shadow;
    Region& region = shadow.give_out(4096, 512);
    const int64_t with_region = shadow_bytes.load();
    EXPECT_TRUE(with_region >= before + int64_t(sizeof(Region)));
    region.accesses.reserve(10);
    EXPECT_EQ(shadow_bytes.load(), with_region + 10 * int64_t(sizeof(Access)));
  }
  EXPECT_EQ(shadow_bytes.load(), before);
}

TEST(Clock, OnlyGrows) {
  VectorClock clock = at(2, 7);
  clock.raise(2, 5);
  EXPECT_EQ(clock[2], 7);
  EXPECT_EQ(clock[0], 0);
  EXPECT_TRUE(clock.join(at(4, 1), 9));
  EXPECT_TRUE(!clock.join(at(2, 7), 9));
  EXPECT_TRUE(!clock.join(at(0, 3), 0));  // its own number is not joined
  EXPECT_EQ(clock[0], 0);
  EXPECT_EQ(clock[4], 1);
}

TEST(ClockHistory, KnowsWhatWasKnownAtEachMoment) {
  ClockHistory history;
  history.join(10, at(1, 5), 0);
  history.join(20, at(1, 9), 0);
  history.join(20, at(3, 2), 0);
  for (const auto& [moment, known] :
       {std::pair{0, 0}, {10, 0}, {11, 5}, {20, 5}, {21, 9}})
    EXPECT_EQ(history.before(uint64_t(moment))[1], known);
  EXPECT_EQ(history.before(21)[3], 2);
  EXPECT_EQ(history.now()[1], 9);
}

TEST(ClockHistory, GivesNoMomentAwayForOneThatTaughtNothing) {
  ClockHistory history;
  history.join(10, at(1, 5), 0);
  for (uint64_t i = 20; i < 2000; ++i) history.join(i, at(1, 5), 0);
  EXPECT_EQ(history.before(10)[1], 0);
  EXPECT_EQ(history.before(11)[1], 5);
}

// Of a long history the oldest moments are merged into the oldest one that is
// kept.
TEST(ClockHistory, KeepsTheNewest) {
  ClockHistory history;
  for (uint64_t i = 1; i <= 10'000; ++i) history.join(10 * i, at(1, i), 0);
  EXPECT_EQ(history.now()[1], 10'000);
  for (const uint64_t i : {9'999, 9'998, 9'745})  // of 256
    EXPECT_EQ(history.before(10 * i + 1)[1], i);
  EXPECT_EQ(history.before(11)[1], 9'745);
}

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

// Whatever the order of its dimensions, and with some of size one or stride 0.
TEST(Box, OfPermutedDimensionsIsTheSame) {
  for (const Shape& shape :
       {Shape{{4, 5, 6}, {30, 6, 1}, 1000, 4},
        Shape{{10, 4, 3}, {1, 1, 5}, 1000, 4},  // windows that share elements
        Shape{{4, 5}, {1, 4}, 1000, 4}, Shape{{5, 4, 6}, {24, 1, 4}, 1000, 4},
        Shape{{4, 1, 5}, {1, 77, 4}, 1000, 4},
        Shape{{4, 1, 5}, {5, 99, 1}, 1000, 4}, Shape{{1, 9}, {1, 1}, 1000, 4},
        Shape{{3, 4, 5}, {0, 1, 4}, 1000, 4}}) {
    const Box box = shape.box();
    EXPECT_TRUE(box.solid() && box.lo == 1000);
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

TEST(Box, OfARangeTakesItsLengthFromTheTask) {
  const npu_view view{nullptr, nullptr, 1, 2, 0, NPU_WRITE};
  const uint64_t words[] = {4096, 100};

  const Box box = box_of(view, words);

  EXPECT_EQ(box.hi - box.lo, 200);
}

// Compares with counting every byte; returns how many of the pairs meet.
template <typename Make>
int expect_agreement(int rounds, Make shape) {
  int met = 0;
  for (int round = 0; round < rounds; ++round) {
    const Shape one = shape(0), two = shape(1);
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
  return met;
}

// As many different strides as two boxes can have.
TEST(Box, OverlapAgreesWithCountingForTwelveStrides) {
  std::mt19937_64 random(11);
  const int met = expect_agreement(300, [&](int64_t which) {
    Shape s{{}, {}, 1000 + random() % 64, 1};
    for (int64_t i = 0; i < 6; ++i) {
      s.sizes.push_back(2);
      s.strides.push_back(2 + which + 10 * i + int64_t(random() % 2) * 4);
    }
    return s;
  });
  EXPECT_TRUE(met > 100);
}

TEST(Box, OverlapAgreesWithCountingEveryByte) {
  std::mt19937_64 random(7);
  const auto pick = [&](int n) { return int64_t(random() % uint64_t(n)); };
  const int met = expect_agreement(20'000, [&](int64_t) {
    Shape s{{}, {}, uint64_t(1000 + pick(40)), uint32_t(1 << pick(3))};
    for (int64_t ndim = pick(4); ndim > 0; --ndim) {
      s.sizes.push_back(pick(5));
      s.strides.push_back(pick(9));
    }
    return s;
  });
  EXPECT_TRUE(met > 2000 && met < 18'000);
}

}  // namespace
}  // namespace npu
