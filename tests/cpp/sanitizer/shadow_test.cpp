// What is known about memory when it is handed out, split and joined.
#include "csrc/sanitizer/shadow.h"

#include <algorithm>
#include <memory>
#include <vector>

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

using Numbers = std::vector<uint64_t>;
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
  EXPECT_TRUE(numbers(region) == Numbers({5, 3}));
  EXPECT_TRUE(!region.one_stream);
  region.add(access(2, 4, 100, 150), kNothing, kNothing);  // covers half of it
  EXPECT_TRUE(numbers(region) == Numbers({5, 3, 4}));
  region.add(access(2, 6, 100, 200), kNothing, kNothing);  // covers its own
  EXPECT_TRUE(numbers(region) == Numbers({5, 6}));
  region.add(access(2, 7, 100, 200), at(1, 4), kNothing);  // 5 comes after 4
  EXPECT_TRUE(numbers(region) == Numbers({5, 7}));
  region.add(access(2, 8, 100, 200), at(1, 5), kNothing);
  EXPECT_TRUE(numbers(region) == Numbers({8}));
}

// A read replaces only reads: later reads are unordered with an old write all
// the same.
TEST(Region, KeepsAWriteBehindARead) {
  Region region;
  region.add(access(1, 1, 0, 8), kNothing, kNothing);
  region.add(access(1, 2, 0, 8, false), kNothing, kNothing);
  EXPECT_TRUE(numbers(region) == Numbers({1, 2}));
  region.add(access(1, 3, 0, 8, false), kNothing, kNothing);
  EXPECT_TRUE(numbers(region) == Numbers({1, 3}));
  region.add(access(1, 4, 0, 8), kNothing, kNothing);
  EXPECT_TRUE(numbers(region) == Numbers({4}));
}

// The newest of a stream's accesses is the one that others have to wait for.
TEST(Region, KeepsTheNewestOfOneStreamsAccesses) {
  Region region;
  for (uint64_t number = 1; number <= 3; ++number) {
    region.add(access(1, number, 0, 8), kNothing, kNothing);
    EXPECT_TRUE(numbers(region) == Numbers({number}));
  }
}

TEST(Region, ForgetsWhatTheHostHasWaitedFor) {
  Region region;
  region.add(access(1, 5, 0, 8), kNothing, kNothing);
  region.add(access(2, 9, 0, 4), kNothing, at(1, 4));
  EXPECT_TRUE(numbers(region) == Numbers({5, 9}));
  region.add(access(2, 10, 4, 8), kNothing, at(1, 5));
  EXPECT_TRUE(numbers(region) == Numbers({9, 10}));
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
  EXPECT_TRUE(shadow.find(4095) == nullptr);
  EXPECT_EQ(shadow.find(4096)->lo, 4096);
  EXPECT_EQ(shadow.find(4600)->lo, 4096);
  EXPECT_TRUE(shadow.find(4608) == nullptr);
  EXPECT_EQ(shadow.find(5631)->lo, 5120);
  EXPECT_TRUE(shadow.find(5632) == nullptr);
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
  EXPECT_EQ(fresh.alloc_site, 0);
  EXPECT_EQ(fresh.free_site, 0);
  EXPECT_EQ(fresh.old_alloc_site, 0);
  EXPECT_EQ(fresh.old_free_site, 0);
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
  EXPECT_TRUE(numbers(middle) == Numbers({2, 4}));
  EXPECT_TRUE(!middle.one_stream);
  for (const Access& a : middle.accesses) EXPECT_TRUE(a.stale);
  const Region& left = *shadow.find(4096);
  EXPECT_TRUE(left.lo == 4096 && left.hi == 4608 && !left.live);
  EXPECT_TRUE(numbers(left) == Numbers({1, 4, 5}));
  EXPECT_TRUE(shadow.find(4607) == &left);
  const Region& right = *shadow.find(5120);
  EXPECT_TRUE(right.lo == 5120 && right.hi == 5632 && !right.live);
  EXPECT_TRUE(numbers(right) == Numbers({3, 4}));
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
  EXPECT_TRUE(numbers(joined) == Numbers({1, 4106, 4618, 5130}));
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
  for (const uintptr_t lo : {4096, 4608, 5120, 5632}) shadow.give_out(lo, 512);
  shadow.forget(4700, 800);  // begins and ends inside of a block
  EXPECT_TRUE(shadow.find(4096) != nullptr);
  EXPECT_TRUE(shadow.find(4608) == nullptr);
  EXPECT_TRUE(shadow.find(5120) == nullptr);
  EXPECT_TRUE(shadow.find(5632) != nullptr);
  shadow.give_out(4608, 512);
  shadow.forget(4096, 512);  // ends where the next begins
  EXPECT_TRUE(shadow.find(4608) != nullptr);
  EXPECT_TRUE(shadow.find(4096) == nullptr);
  EXPECT_TRUE(shadow.find(5632) != nullptr);
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

}  // namespace
}  // namespace npu
