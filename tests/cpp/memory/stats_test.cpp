// What is counted, also where there is no memory left, and what is said then.
#include "csrc/memory/settings.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

// The four values of a statistic: current, peak, allocated, freed.
using Four = std::array<int64_t, 4>;
void expect(std::map<std::string, int64_t>& stats, const char* name, Four small,
            Four large, Four all) {
  const std::pair<const char*, Four> pools[] = {
      {".small_pool", small}, {".large_pool", large}, {".all", all}};
  for (const auto& [pool, four] : pools) {
    const std::string key = std::string(name) + pool;
    EXPECT_EQ(stats[key + ".current"], four[0]);
    EXPECT_EQ(stats[key + ".peak"], four[1]);
    EXPECT_EQ(stats[key + ".allocated"], four[2]);
    EXPECT_EQ(stats[key + ".freed"], four[3]);
  }
}

TEST(MemoryStats, CountAllOfABlocksLifePerPool) {
  constexpr int64_t M = kMiB, kAsked = 3 * M - 1;
  Memory memory;
  Gate gate;
  Block* a = take(memory, 1000);
  Block* b = take(memory, 600);
  Block* c = take(memory, size_t(kAsked));
  memory.free(a);
  submit(second_stream(), kGate, {word(&gate)});
  memory.record_stream(c, second_stream());
  memory.free(c);

  auto s = memory.stats();
  EXPECT_EQ(s.size(), 9 * 3 * 4 + 2 * 4 + 6);  // torch's keys
  EXPECT_EQ(s["max_split_size"], -1);          // none is set
  expect(s, "allocation", {1, 2, 2, 1}, {0, 1, 1, 1}, {1, 3, 3, 2});
  expect(s, "allocated_bytes", {1024, 2048, 2048, 1024},
         {0, 3 * M, 3 * M, 3 * M},
         {1024, 3 * M + 2048, 3 * M + 2048, 3 * M + 1024});
  expect(s, "active", {1, 2, 2, 1}, {1, 1, 1, 0}, {2, 3, 3, 1});
  expect(s, "active_bytes", {1024, 2048, 2048, 1024}, {3 * M, 3 * M, 3 * M, 0},
         {3 * M + 1024, 3 * M + 2048, 3 * M + 2048, 1024});
  expect(s, "requested_bytes", {600, 1600, 1600, 1000},
         {kAsked, kAsked, kAsked, 0},
         {kAsked + 600, kAsked + 1600, kAsked + 1600, 1000});
  expect(s, "segment", {1, 1, 1, 0}, {1, 1, 1, 0}, {2, 2, 2, 0});
  expect(s, "reserved_bytes", {2 * M, 2 * M, 2 * M, 0},
         {20 * M, 20 * M, 20 * M, 0}, {22 * M, 22 * M, 22 * M, 0});
  expect(s, "inactive_split", {2, 2, 2, 0}, {1, 1, 1, 0}, {3, 3, 3, 0});
  expect(s, "inactive_split_bytes",
         {2 * M - 1024, 2 * M - 1024, 2 * M - 1024, 0},
         {17 * M, 17 * M, 17 * M, 0},
         {19 * M - 1024, 19 * M - 1024, 19 * M - 1024, 0});
  EXPECT_EQ(s["num_device_alloc"], 2);

  memory.reset_peak_stats();
  s = memory.stats();
  EXPECT_EQ(s["active.all.peak"], 2);
  EXPECT_EQ(memory.totals().max_allocated, 1024);
  EXPECT_EQ(s["allocation.all.allocated"], 3);  // has its own reset
  memory.reset_accumulated_stats();
  gate.open();
  memory.empty_cache();
  s = memory.stats();
  expect(s, "allocation", {1, 1, 0, 0}, {0, 0, 0, 0}, {1, 1, 0, 0});
  expect(s, "allocated_bytes", {1024, 1024, 0, 0}, {0, 0, 0, 0},
         {1024, 1024, 0, 0});
  expect(s, "active", {1, 1, 0, 0}, {0, 1, 0, 1}, {1, 2, 0, 1});
  expect(s, "active_bytes", {1024, 1024, 0, 0}, {0, 3 * M, 0, 3 * M},
         {1024, 3 * M + 1024, 0, 3 * M});
  expect(s, "requested_bytes", {600, 600, 0, 0}, {0, kAsked, 0, kAsked},
         {600, kAsked + 600, 0, kAsked});
  expect(s, "segment", {1, 1, 0, 0}, {0, 1, 0, 1}, {1, 2, 0, 1});
  expect(s, "reserved_bytes", {2 * M, 2 * M, 0, 0}, {0, 20 * M, 0, 20 * M},
         {2 * M, 22 * M, 0, 20 * M});
  expect(s, "inactive_split", {2, 2, 0, 0}, {0, 1, 0, 1}, {2, 3, 0, 1});
  expect(s, "inactive_split_bytes", {2 * M - 1024, 2 * M - 1024, 0, 0},
         {0, 17 * M, 0, 17 * M}, {2 * M - 1024, 19 * M - 1024, 0, 17 * M});
  EXPECT_TRUE(s["num_device_alloc"] == 0 && s["num_device_free"] == 1);
  memory.free(b);
}

TEST(MemoryStats, OfOversizeBlocksAndOfFailuresAreResetToo) {
  set_allocator_settings({.max_split_size = 40 * kMiB});
  Memory memory;
  const DeviceBlock& seen = segment().devices[0];
  const uint64_t retries = seen.alloc_retries.load(), ooms = seen.ooms.load();
  Block* block = take(memory, 50 * kMiB);
  memory.free(take(memory, 60 * kMiB));
  EXPECT_TRUE(!take(memory, 2 * kTotal));
  auto s = memory.stats();
  EXPECT_EQ(s["oversize_allocations.current"], 1);
  EXPECT_EQ(s["oversize_allocations.peak"], 2);
  EXPECT_EQ(s["oversize_allocations.freed"], 1);
  EXPECT_EQ(s["oversize_segments.peak"], 2);
  EXPECT_EQ(s["oversize_segments.freed"], 1);  // the retry gave it back
  EXPECT_TRUE(s["num_ooms"] == 1 && s["num_alloc_retries"] == 1);
  EXPECT_EQ(seen.alloc_retries.load(), retries + 1);
  EXPECT_EQ(seen.ooms.load(), ooms + 1);
  memory.reset_peak_stats();
  memory.reset_accumulated_stats();
  s = memory.stats();
  for (const char* name : {"oversize_allocations", "oversize_segments"}) {
    const std::string key = name;
    EXPECT_TRUE(s[key + ".current"] == 1 && s[key + ".peak"] == 1);
    EXPECT_TRUE(s[key + ".allocated"] == 0 && s[key + ".freed"] == 0);
  }
  EXPECT_TRUE(s["num_ooms"] == 0 && s["num_alloc_retries"] == 0);
  memory.free(block);
  set_allocator_settings({});
}

TEST(MemoryStats, CountWhenTheCacheWaitedForAStream) {
  Memory memory;
  memory.free(take(memory, 512));
  memory.empty_cache();
  EXPECT_EQ(memory.stats()["num_sync_all_streams"], 0);
  Gate gate;
  memory.free(take(memory, 512));
  submit(first_stream(), kGate, {word(&gate)});
  std::jthread opener([&] {
    while (first_stream().retired().wanted() < first_stream().tail())
      std::this_thread::yield();
    gate.open();
  });
  memory.empty_cache();
  EXPECT_EQ(memory.stats()["num_sync_all_streams"], 1);
  memory.reset_accumulated_stats();
  EXPECT_EQ(memory.stats()["num_sync_all_streams"], 0);
}

TEST(MemoryStats, AreMirroredForOtherProcesses) {
  Memory memory;
  const DeviceBlock& seen = segment().devices[0];
  memory.reset_peak_stats();

  Block* block = take(memory, 4096);
  EXPECT_EQ(seen.allocated.load(), 4096);
  EXPECT_EQ(seen.reserved.load(), 2 * kMiB);
  memory.free(block);

  EXPECT_EQ(seen.allocated.load(), 0);
  EXPECT_EQ(seen.allocated_peak.load(), 4096);
  const uint64_t allocations = seen.allocations.load();
  memory.free(take(memory, 1024));
  EXPECT_EQ(seen.allocations.load(), allocations + 1);
  EXPECT_EQ(seen.allocated_peak.load(), 4096);
  memory.reset_peak_stats();
  EXPECT_EQ(seen.allocated_peak.load(), 0);
  memory.empty_cache();
  EXPECT_EQ(seen.reserved.load(), 0);
  EXPECT_EQ(memory.totals().max_reserved, 2 * kMiB);
}

TEST(MemoryStats, TheSnapshotCoversEverySegmentWithoutGaps) {
  Memory memory;
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

TEST(OutOfMemory, SaysWhatWasAskedAndWhatThereIs) {
  Memory memory;
  Block* const blocks[] = {take(memory, 100 * kMiB), take(memory, 5 * kMiB)};
  OutOfMemory why;
  EXPECT_TRUE(!memory.allocate(200 * kMiB, first_stream(), why));
  EXPECT_EQ(why.asked, 200 * kMiB);
  EXPECT_EQ(why.total, kTotal);
  EXPECT_EQ(why.free, 136 * kMiB);
  EXPECT_EQ(why.allocated, 105 * kMiB);
  EXPECT_EQ(why.reserved, 120 * kMiB);
  auto stats = memory.stats();
  EXPECT_EQ(stats["num_ooms"], 1);
  EXPECT_EQ(stats["num_alloc_retries"], 1);
  const std::string text = why.message();
  EXPECT_TRUE(text.starts_with(
      "NPU out of memory. Tried to allocate 200.00 MiB. NPU 0 has a total "
      "capacity of 256.00 MiB of which 136.00 MiB is free."));
  for (const char* part : {"105.00 MiB is allocated", "15.00 MiB is reserved",
                           "PYTORCH_NPU_ALLOC_CONF"})
    EXPECT_CONTAINS(text, part);
  for (Block* block : blocks) memory.free(block);
}

TEST(OutOfMemory, WritesSizesAsPeopleReadThem) {
  const auto says = [](uint64_t bytes) {
    OutOfMemory why{bytes, 1 << 20, 0, 1 << 20, 0, 0, 3};
    const std::string text = why.message();
    EXPECT_TRUE(text.find("at most") == std::string::npos);
    EXPECT_CONTAINS(text, "NPU 3 has");
    const size_t from = text.find("allocate ") + 9;
    return text.substr(from, text.find(". ", from) - from);
  };
  EXPECT_EQ(says(1023), "1023 bytes");
  EXPECT_EQ(says(1024), "1.00 KiB");
  EXPECT_EQ(says(1536), "1.50 KiB");
  EXPECT_EQ(says(uint64_t{1} << 30), "1.00 GiB");
  EXPECT_EQ(says(uint64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(says(uint64_t{1} << 50), "1024.00 TiB");
}

TEST(OutOfMemory, RefusesAbsurdSizes) {
  Memory memory;
  for (size_t bytes : {~size_t{0}, ~size_t{0} - 511, size_t{1} << 62})
    EXPECT_TRUE(take(memory, bytes) == nullptr);
  EXPECT_TRUE(take(memory, 512) != nullptr);
}

TEST(OutOfMemory, ReturnsTheCacheToTheDriverBeforeFailing) {
  Memory memory;
  memory.free(take(memory, 200 * kMiB));

  Block* block = take(memory, 200 * kMiB, second_stream());

  EXPECT_TRUE(block != nullptr);
  EXPECT_EQ(memory.reserved(), 200 * kMiB);
  auto stats = memory.stats();
  EXPECT_EQ(stats["num_alloc_retries"], 1);
  EXPECT_EQ(stats["num_ooms"], 0);
  EXPECT_EQ(stats["num_device_alloc"], 2);
  EXPECT_EQ(stats["num_device_free"], 1);
}

TEST(OutOfMemory, TheFractionLimitsWhatIsReserved) {
  Memory memory;
  memory.set_fraction(0.25);

  EXPECT_TRUE(take(memory, 65 * kMiB) == nullptr);
  Block* block = take(memory, 64 * kMiB);
  EXPECT_TRUE(block != nullptr);
  OutOfMemory why;
  EXPECT_TRUE(memory.allocate(512, first_stream(), why) == nullptr);
  EXPECT_EQ(why.limit, 64 * kMiB);
  EXPECT_CONTAINS(why.message(), "at most 64.00 MiB");

  memory.set_fraction(1.0);
  EXPECT_EQ(memory.fraction(), 1.0);
  EXPECT_TRUE(take(memory, 65 * kMiB) != nullptr);
  EXPECT_EQ(memory.info().free, kTotal - 130 * kMiB);
  EXPECT_EQ(memory.info().total, kTotal);
}

}  // namespace
}  // namespace npu
