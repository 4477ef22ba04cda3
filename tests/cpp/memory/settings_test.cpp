// The effect of the allocators' settings.
#include <cmath>

#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

// The settings hold until the end of the test.
struct With {
  explicit With(const AllocatorSettings& settings) {
    set_allocator_settings(settings);
  }
  ~With() { set_allocator_settings({}); }
};

// Sizes are rounded to the divisions of their power of two, from 1 MiB on.
size_t rounded(size_t bytes, std::initializer_list<uint32_t> divisions) {
  AllocatorSettings settings;
  std::ranges::copy(divisions, settings.roundup_divisions.begin());
  const With set(settings);
  return block_bytes(bytes, allocator_settings());
}

TEST(Settings, RefuseFractionsOfMoreThanThereIs) {
  for (const double wrong : {-0.5, 1.5, std::nan("")})
    for (const AllocatorSettings& settings :
         {AllocatorSettings{.memory_fraction = wrong},
          AllocatorSettings{.gc_threshold = wrong}})
      EXPECT_THROWS(set_allocator_settings(settings), std::invalid_argument);
  EXPECT_EQ(allocator_settings().gc_threshold, 0);
}

TEST(Settings, LimitTheMemoryOfTheProcess) {
  {
    With quarter({.memory_fraction = 0.25});
    EXPECT_EQ(allocator(0).fraction(), 0.25);
  }
  allocator(0).set_fraction(1);
}

TEST(Settings, SayWhichBlockServesALargeRequest) {
  OutOfMemory why{};
  Stream& stream = next_stream(0, StreamPool::kNormal);
  const auto served_by_120_mib = [&](const AllocatorSettings& settings) {
    With set(settings);
    allocator(0).empty_cache();
    Block* large = allocator(0).allocate(120 * kMiB, stream, why);
    const void* address = large->ptr;
    allocator(0).free(large);
    Block* block = allocator(0).allocate(95 * kMiB, stream, why);
    const bool same = block->ptr == address;
    allocator(0).free(block);
    return same;
  };
  EXPECT_TRUE(!served_by_120_mib({.max_split_size = 64 * kMiB}));
  EXPECT_TRUE(served_by_120_mib(
      {.max_split_size = 64 * kMiB, .max_non_split_rounding = 30 * kMiB}));
}

TEST(Settings, RoundSizesUpToDivisionsOfPowersOfTwo) {
  const auto all = [](size_t bytes) { return rounded(bytes, {4, 4, 4, 4}); };
  EXPECT_EQ(rounded(5 * kMiB + 1, {}), 5 * kMiB + 512);
  EXPECT_EQ(all(5 * kMiB), 5 * kMiB);
  EXPECT_EQ(all(5 * kMiB + 1), 6 * kMiB);
  EXPECT_EQ(all(7 * kMiB + 1), 8 * kMiB);
  EXPECT_EQ(all(8 * kMiB), 8 * kMiB);
  // Too small for so many divisions of 512 bytes.
  EXPECT_EQ(all(1200), 1536);
}

TEST(Settings, RoundEachPowerOfTwoAsItsEntrySays) {
  const auto mixed = [](size_t bytes) {
    return rounded(bytes, {1, 1, 1, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8});
  };
  EXPECT_EQ(mixed(5 * kMiB + 1), 5 * kMiB + 512);  // from 4: as without
  EXPECT_EQ(mixed(9 * kMiB), 12 * kMiB);           // from 8: halves
  EXPECT_EQ(mixed(17 * kMiB), 24 * kMiB);
  EXPECT_EQ(mixed(33 * kMiB), 36 * kMiB);  // above: eighths
  EXPECT_EQ(mixed(16 * kMiB), 16 * kMiB);
  const size_t tib = size_t{1} << 40;
  EXPECT_EQ(mixed(tib + 1), tib + tib / 8);  // as the last power
  EXPECT_EQ(rounded(kMiB - 1000, {2}), kMiB);
  EXPECT_EQ(rounded(2 * kMiB + 1, {2}), 2 * kMiB + 512);
  EXPECT_EQ(mixed(size_t{1} << 60), size_t{1} << 60);
  EXPECT_EQ(mixed((size_t{1} << 60) + 1), size_t{1} << 60);
  // Divisions count only for more than 512 bytes times their number.
  EXPECT_EQ(rounded(1024, {2}), 1024);
  EXPECT_EQ(rounded(1025, {2}), 1536);
}

TEST(Settings, GarbageIsCollectedAboveTheThresholdOldestFirst) {
  for (const double threshold : {0.5, 0.9}) {  // of 256 MiB
    const With settings({.gc_threshold = threshold});
    Memory memory;
    Block* old = take(memory, 60 * kMiB);
    Block* recent = take(memory, 70 * kMiB);
    void* kept = recent->ptr;
    memory.free(old);
    memory.free(recent);
    take(memory, 80 * kMiB);  // 130 MiB are held
    // The 60 went, or all stayed.
    EXPECT_EQ(memory.reserved(), threshold < 0.9 ? 150 * kMiB : 210 * kMiB);
    EXPECT_EQ(memory.stats()["num_alloc_retries"], 0);
    EXPECT_TRUE(take(memory, 70 * kMiB)->ptr == kept);
  }
}

}  // namespace
}  // namespace npu
