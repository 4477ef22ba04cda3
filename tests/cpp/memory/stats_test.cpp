#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

TEST(MemoryStats, HasTorchsKeys) {
  auto memory = make_allocator();

  const auto stats = memory.stats();

  EXPECT_EQ(stats.size(), 9 * 3 * 4 + 2 * 4 + 6);
  for (const char* key :
       {"allocation.all.current", "segment.small_pool.peak",
        "active.large_pool.allocated", "inactive_split.all.freed",
        "allocated_bytes.all.peak", "reserved_bytes.large_pool.current",
        "active_bytes.all.current", "inactive_split_bytes.all.current",
        "requested_bytes.small_pool.freed", "oversize_allocations.current",
        "oversize_segments.peak", "num_alloc_retries", "num_ooms",
        "max_split_size", "num_sync_all_streams", "num_device_alloc",
        "num_device_free"})
    EXPECT_TRUE(stats.count(key));
}

TEST(MemoryStats, CountRoundedAndRequestedBytesPerPool) {
  auto memory = make_allocator();
  Block* small = take(memory, 1000, first_stream());
  Block* large = take(memory, 3 * kMiB - 1, first_stream());
  memory.free(small);

  auto stats = memory.stats();

  EXPECT_EQ(stats["allocation.all.allocated"], 2);
  EXPECT_EQ(stats["allocation.small_pool.freed"], 1);
  EXPECT_EQ(stats["allocated_bytes.all.peak"], 3 * kMiB + 1024);
  EXPECT_EQ(stats["allocated_bytes.small_pool.allocated"], 1024);
  EXPECT_EQ(stats["allocated_bytes.large_pool.current"], 3 * kMiB);
  EXPECT_EQ(stats["requested_bytes.all.current"], 3 * kMiB - 1);
  EXPECT_EQ(stats["requested_bytes.small_pool.allocated"], 1000);
  EXPECT_EQ(stats["segment.all.current"], 2);
  EXPECT_EQ(stats["reserved_bytes.small_pool.current"], 2 * kMiB);
  EXPECT_EQ(stats["inactive_split.all.current"], 1);
  EXPECT_EQ(stats["inactive_split_bytes.large_pool.current"], 17 * kMiB);
  memory.free(large);
  EXPECT_EQ(memory.stats()["inactive_split_bytes.all.current"], 0);
}

TEST(MemoryStats, ResetsPeaksAndTotalsSeparately) {
  auto memory = make_allocator();
  Block* kept = take(memory, 512, first_stream());
  memory.free(take(memory, 4096, first_stream()));

  memory.reset_peak_stats();
  EXPECT_EQ(memory.max_allocated(), 512);
  EXPECT_EQ(memory.stats()["allocation.all.allocated"], 2);
  memory.reset_accumulated_stats();
  memory.free(kept);

  auto stats = memory.stats();
  EXPECT_EQ(stats["allocation.all.allocated"], 0);
  EXPECT_EQ(stats["allocation.all.freed"], 1);
  EXPECT_EQ(stats["active_bytes.small_pool.freed"], 512);
  EXPECT_EQ(stats["allocated_bytes.all.peak"], 512);
  EXPECT_EQ(stats["num_device_alloc"], 0);
}

TEST(MemoryStats, AreMirroredForOtherProcesses) {
  auto memory = make_allocator();
  const DeviceBlock& seen = segment().devices[0];
  memory.reset_peak_stats();

  Block* block = take(memory, 4096, first_stream());
  EXPECT_EQ(seen.allocated.load(), 4096);
  EXPECT_EQ(seen.reserved.load(), 2 * kMiB);
  memory.free(block);

  EXPECT_EQ(seen.allocated.load(), 0);
  EXPECT_EQ(seen.allocated_peak.load(), 4096);
  memory.empty_cache();
  EXPECT_EQ(seen.reserved.load(), 0);
  EXPECT_EQ(memory.max_reserved(), 2 * kMiB);
}

TEST(MemoryStats, TheSnapshotCoversEverySegmentWithoutGaps) {
  auto memory = make_allocator();
  Block* kept = take(memory, 700, second_stream());
  memory.free(take(memory, 512, second_stream()));
  memory.free(take(memory, 1024, second_stream()));

  const auto segments = memory.snapshot();

  EXPECT_EQ(segments.size(), 1);
  EXPECT_EQ(segments[0].stream, second_stream().id());
  EXPECT_TRUE(segments[0].small);
  EXPECT_EQ(segments[0].total, 2 * kMiB);
  EXPECT_EQ(segments[0].allocated, 1024);
  EXPECT_EQ(segments[0].requested, 700);
  EXPECT_EQ(segments[0].blocks.size(), 2);
  EXPECT_EQ(segments[0].blocks[0].address,
            reinterpret_cast<uintptr_t>(kept->ptr));
  EXPECT_EQ(segments[0].blocks[1].size, 2 * kMiB - 1024);
}

}  // namespace
}  // namespace npu
