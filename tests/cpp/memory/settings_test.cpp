// PYTORCH_NPU_ALLOC_CONF: what it may contain, and the effect.
#include "csrc/memory/settings.h"

#include <stdexcept>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/memory/caching_allocator.h"
#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

// The settings hold until the end of the test.
struct With {
  explicit With(const std::string& text) { set_allocator_settings(text); }
  ~With() { set_allocator_settings(""); }
};

std::string refusal(const std::string& text) {
  try {
    parse_allocator_settings(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

size_t rounded(size_t bytes, const std::string& text) {
  return block_bytes(bytes, parse_allocator_settings(text));
}

TEST(Settings, AreReadWithSpacesAndInAnyOrder) {
  const AllocatorSettings s = parse_allocator_settings(
      " expandable_segments:True, max_split_size_mb:64 ,"
      "garbage_collection_threshold:0.8,backend:native");

  EXPECT_EQ(s.max_split_size, 64 * kMiB);
  EXPECT_TRUE(s.gc_threshold == 0.8);
  EXPECT_TRUE(s.expandable_segments);
  EXPECT_TRUE(!s.rounds);
}

TEST(Settings, NameWhatIsWrongAndWhatWouldBeRight) {
  struct Case {
    const char *text, *part;
  };
  for (Case c : {Case{"max_split_mb:64", "unknown key 'max_split_mb'"},
                 Case{"max_split_mb:64",
                      "the nearest that is known is max_split_size_mb"},
                 Case{"pined_use_background_threads:True",
                      "known is pinned_use_background_threads"},
                 Case{"pinned_use_background_threads:3", "True or False"},
                 Case{"pinned_num_register_threads:many", "a number"},
                 Case{"per_process_memory_fraction:1.5", "at most 1"},
                 Case{"per_process_memory_fraction:0", "above 0"},
                 Case{"max_non_split_rounding_mb:20", "above 20"},
                 Case{"max_split_mb:64", "garbage_collection_threshold"},
                 Case{"max_split_size_mb:20", "above 20"},
                 Case{"max_split_size_mb:many", "'many'"},
                 Case{"garbage_collection_threshold:1.5", "below 1"},
                 Case{"garbage_collection_threshold:", "below 1"},
                 Case{"expandable_segments:perhaps", "True or False"},
                 Case{"roundup_power2_divisions:3", "power of two"},
                 Case{"roundup_power2_divisions:[256:1", "power of two"},
                 Case{"roundup_power2_divisions:[3:2]", "power of two"},
                 Case{"base_addr_aligned_kb:17", "0 to 16"},
                 Case{"page_size:4k", "1g"},
                 Case{"backend:cudaMallocAsync", "change_current_allocator"},
                 Case{"expandable_segments", "key:value"}}) {
    const std::string text = refusal(c.text);
    EXPECT_TRUE(text.find(c.part) != std::string::npos);
    EXPECT_TRUE(text.find("PYTORCH_NPU_ALLOC_CONF") == 0);
  }
}

TEST(Settings, AcceptWhatOtherAllocatorsKnowAndNameItAsWithoutEffect) {
  const AllocatorSettings s = parse_allocator_settings(
      "pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
      "release_lock_on_npumalloc:True,release_lock_on_cudamalloc:False,"
      "multi_stream_lazy_reclaim:True,segment_size_mb:40,max_split_size_mb:64");

  EXPECT_EQ(s.without_effect.size(), 6);
  EXPECT_EQ(s.without_effect[1], "pinned_num_register_threads");
  EXPECT_EQ(s.max_split_size, 64 * kMiB);
}

TEST(Settings, AcceptEachValueThatIsRight) {
  for (const char* yes : {"True", "true", "1"})
    EXPECT_TRUE(
        parse_allocator_settings(std::string("expandable_segments:") + yes)
            .expandable_segments);
  for (const char* no : {"False", "false", "0"})
    EXPECT_TRUE(
        !parse_allocator_settings(std::string("expandable_segments:") + no)
             .expandable_segments);
  for (const char* text :
       {"", " , ", "base_addr_aligned_kb:0", "base_addr_aligned_kb:16",
        "page_size:1g", "backend:native", "max_split_size_mb:21",
        "max_split_size_mb:17592186044415",
        "max_non_split_rounding_mb:17592186044415",
        "max_non_split_rounding_mb:21", "garbage_collection_threshold:0.001",
        "roundup_power2_divisions:1", "roundup_power2_divisions:[]"}) {
    EXPECT_EQ(refusal(text), "");
    EXPECT_EQ(parse_allocator_settings(text).text, text);
  }
  EXPECT_EQ(parse_allocator_settings("max_non_split_rounding_mb:21")
                .max_non_split_rounding,
            21 * kMiB);
  EXPECT_TRUE(parse_allocator_settings("per_process_memory_fraction:1")
                  .memory_fraction == 1);
  EXPECT_TRUE(!parse_allocator_settings("roundup_power2_divisions:1").rounds);
}

TEST(Settings, RefuseEachValueThatIsWrong) {
  for (const char* text :
       {"garbage_collection_threshold:0", "garbage_collection_threshold:1",
        "per_process_memory_fraction:1.01", "per_process_memory_fraction:-1",
        "max_split_size_mb:17592186044416", "max_split_size_mb:64 MB",
        "max_non_split_rounding_mb:17592186044416", "base_addr_aligned_kb:x",
        "roundup_power2_divisions:0", "roundup_power2_divisions:[4]",
        "roundup_power2_divisions:[x:4]", "roundup_power2_divisions:[4:3]",
        "segment_size_mb:-1", "pinned_free_catch_all:yes", ":", "a",
        "page_size:"})
    EXPECT_TRUE(refusal(text).starts_with("PYTORCH_NPU_ALLOC_CONF: "));
  EXPECT_TRUE(
      refusal("x:1").find("the keys are max_split_size_mb, max_non_split"
                          "_rounding_mb, garbage") != std::string::npos);
}

// Letters left out, added, exchanged and moved each count.
TEST(Settings, NameTheNearestKey) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"backen", "backend"},
      {"backendd", "backend"},
      {"bakcend", "backend"},
      {"page-size", "page_size"},
      {"expandable_segment", "expandable_segments"},
      {"segment_size", "segment_size_mb"},
      {"pinned_mem_registered", "pinned_mem_register"},
      {"xmax_split_size_mb", "max_split_size_mb"},
      {"large_segment_size_m", "large_segment_size_mb"}};
  for (const auto& [mistake, right] : mistakes)
    EXPECT_TRUE(refusal(std::string(mistake) + ":1")
                    .ends_with(std::string("known is ") + right));
}

TEST(Settings, LimitTheMemoryOfTheProcess) {
  const MemoryInfo info = allocator(0).info();
  {
    With conf("per_process_memory_fraction:0.25");
    EXPECT_TRUE(allocator(0).fraction() == 0.25);
    OutOfMemory why{};
    Stream& stream = current_stream(0);
    EXPECT_TRUE(!allocator(0).allocate(info.total / 2, stream, why));
    EXPECT_EQ(why.limit, info.total / 4);
  }
  allocator(0).set_fraction(1);
}

TEST(Settings, SayWhichBlockServesALargeRequest) {
  OutOfMemory why{};
  Stream& stream = next_stream(0, StreamPool::kNormal);
  const auto served_by_120_mib = [&](const char* text) {
    With conf(text);
    allocator(0).empty_cache();
    Block* large = allocator(0).allocate(120 * kMiB, stream, why);
    const void* address = block_address(large);
    allocator(0).free(large);
    Block* block = allocator(0).allocate(95 * kMiB, stream, why);
    const bool same = block_address(block) == address;
    allocator(0).free(block);
    return same;
  };
  EXPECT_TRUE(!served_by_120_mib("max_split_size_mb:64"));
  EXPECT_TRUE(
      served_by_120_mib("max_split_size_mb:64,max_non_split_rounding_mb:30"));
}

TEST(Settings, RoundSizesUpToDivisionsOfPowersOfTwo) {
  EXPECT_EQ(rounded(5 * kMiB + 1, ""), 5 * kMiB + 512);
  EXPECT_EQ(rounded(5 * kMiB, "roundup_power2_divisions:4"), 5 * kMiB);
  EXPECT_EQ(rounded(5 * kMiB + 1, "roundup_power2_divisions:4"), 6 * kMiB);
  EXPECT_EQ(rounded(7 * kMiB + 1, "roundup_power2_divisions:4"), 8 * kMiB);
  EXPECT_EQ(rounded(8 * kMiB, "roundup_power2_divisions:4"), 8 * kMiB);
  // Too small for so many divisions of 512 bytes.
  EXPECT_EQ(rounded(1200, "roundup_power2_divisions:4"), 1536);
}

TEST(Settings, RoundEachPowerOfTwoAsItsEntrySays) {
  const std::string text = "roundup_power2_divisions:[4:1,16:2,>:8]";

  EXPECT_EQ(rounded(5 * kMiB + 1, text), 5 * kMiB + 512);  // from 4: as without
  EXPECT_EQ(rounded(9 * kMiB, text), 12 * kMiB);           // from 8: halves
  EXPECT_EQ(rounded(17 * kMiB, text), 24 * kMiB);
  EXPECT_EQ(rounded(33 * kMiB, text), 36 * kMiB);  // above: eighths
  EXPECT_EQ(rounded(16 * kMiB, text), 16 * kMiB);
  const size_t tib = size_t{1} << 40;
  EXPECT_EQ(rounded(tib + 1, text), tib + tib / 8);  // as the last power
  EXPECT_EQ(rounded(kMiB - 1000, "roundup_power2_divisions:[1:2]"), kMiB);
  EXPECT_EQ(rounded(2 * kMiB + 1, "roundup_power2_divisions:[1:2]"),
            2 * kMiB + 512);
  EXPECT_EQ(rounded(size_t{1} << 60, text), size_t{1} << 60);
  EXPECT_EQ(rounded((size_t{1} << 60) + 1, text), size_t{1} << 60);
  // Divisions count only for more than 512 bytes times their number.
  EXPECT_EQ(rounded(1024, "roundup_power2_divisions:2"), 1024);
  EXPECT_EQ(rounded(1025, "roundup_power2_divisions:2"), 1536);
}

TEST(Settings, MaxSplitSizeKeepsLargeBlocksWhole) {
  const With settings("max_split_size_mb:40");
  auto memory = make_allocator();
  Block* large = take(memory, 64 * kMiB, first_stream());
  void* address = large->ptr;
  memory.free(large);

  Block* small = take(memory, 30 * kMiB, first_stream());
  EXPECT_EQ(memory.reserved(), 94 * kMiB);  // not a part of the free 64 MiB
  Block* again = take(memory, 60 * kMiB, first_stream());

  EXPECT_TRUE(again->ptr == address);
  EXPECT_EQ(again->size, 64 * kMiB);  // whole
  auto stats = memory.stats();
  EXPECT_EQ(stats["max_split_size"], int64_t(40 * kMiB));
  EXPECT_EQ(stats["oversize_allocations.current"], 1);
  EXPECT_EQ(stats["oversize_allocations.allocated"], 2);
  EXPECT_EQ(stats["oversize_segments.current"], 1);
  memory.free(small);
  memory.free(again);
}

TEST(Settings, WithoutMaxSplitSizeLargeBlocksAreSplit) {
  auto memory = make_allocator();
  memory.free(take(memory, 64 * kMiB, first_stream()));

  take(memory, 30 * kMiB, first_stream());

  EXPECT_EQ(memory.reserved(), 64 * kMiB);
  EXPECT_EQ(memory.stats()["max_split_size"], -1);
}

TEST(Settings, GarbageIsCollectedAboveTheThresholdOldestFirst) {
  const With settings("garbage_collection_threshold:0.5");  // of 256 MiB
  auto memory = make_allocator();
  Block* old = take(memory, 60 * kMiB, first_stream());
  Block* recent = take(memory, 70 * kMiB, first_stream());
  void* kept = recent->ptr;
  memory.free(old);
  memory.free(recent);

  take(memory, 80 * kMiB, first_stream());  // 130 of 128 MiB are held

  EXPECT_EQ(memory.reserved(), 150 * kMiB);  // the 60 went
  EXPECT_EQ(memory.stats()["num_alloc_retries"], 0);
  EXPECT_TRUE(take(memory, 70 * kMiB, first_stream())->ptr == kept);
}

TEST(Settings, GarbageBelowTheThresholdStays) {
  const With settings("garbage_collection_threshold:0.9");
  auto memory = make_allocator();
  memory.free(take(memory, 60 * kMiB, first_stream()));
  memory.free(take(memory, 70 * kMiB, first_stream()));

  take(memory, 80 * kMiB, first_stream());

  EXPECT_EQ(memory.reserved(), 210 * kMiB);
}

}  // namespace
}  // namespace npu
