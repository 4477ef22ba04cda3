#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

// What the allocator's statistics should be, computed in the slow way.
struct Model {
  std::map<uintptr_t, Block*> live;
  int64_t bytes = 0, requested = 0, peak = 0, total = 0;

  // False when the block overlaps another.
  bool add(Block* block) {
    const auto address = reinterpret_cast<uintptr_t>(block->ptr);
    const auto after = live.lower_bound(address);
    if (after != live.end() && after->first < address + block->size)
      return false;
    if (after != live.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second->size > address) return false;
    }
    live.emplace(address, block);
    bytes += int64_t(block->size);
    requested += int64_t(block->requested);
    peak = std::max(peak, bytes);
    ++total;
    return true;
  }
  void remove(Block* block) {
    live.erase(reinterpret_cast<uintptr_t>(block->ptr));
    bytes -= int64_t(block->size);
    requested -= int64_t(block->requested);
  }
};

void expect_agreement(CachingAllocator& memory, const Model& model) {
  auto stats = memory.stats();
  EXPECT_EQ(stats["allocated_bytes.all.current"], model.bytes);
  EXPECT_EQ(stats["allocated_bytes.all.peak"], model.peak);
  EXPECT_EQ(stats["active_bytes.all.peak"], model.peak);
  EXPECT_EQ(stats["requested_bytes.all.current"], model.requested);
  EXPECT_EQ(stats["allocation.all.current"], model.live.size());
  EXPECT_EQ(stats["allocation.all.allocated"], model.total);
  EXPECT_EQ(stats["allocation.all.freed"],
            model.total - int64_t(model.live.size()));
  for (const char* name : {"allocation", "allocated_bytes", "reserved_bytes",
                           "segment", "active", "inactive_split_bytes"}) {
    const std::string key = name;
    EXPECT_EQ(stats[key + ".all.current"],
              stats[key + ".small_pool.current"] +
                  stats[key + ".large_pool.current"]);
    EXPECT_EQ(stats[key + ".all.current"],
              stats[key + ".all.allocated"] - stats[key + ".all.freed"]);
  }
  uint64_t reserved = 0, allocated = 0;
  for (const SegmentInfo& segment : memory.snapshot()) {
    uintptr_t at = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.size;
    }
    EXPECT_EQ(at, segment.address + segment.total);
    reserved += segment.total;
    allocated += segment.allocated;
  }
  EXPECT_EQ(reserved, stats["reserved_bytes.all.current"]);
  EXPECT_EQ(allocated, model.bytes);
}

TEST(Random, AgreesWithASimpleModelAndMergesEverythingInTheEnd) {
  std::mt19937 random(check::seed());
  const auto below = [&](size_t n) { return random() % n; };
  auto memory = make_allocator();
  Model model;
  std::vector<Block*> held;
  Stream* streams[] = {&first_stream(), &second_stream()};

  for (int step = 0; step < 20'000; ++step) {
    const bool growing = step / 1000 % 2 == 0;
    if (held.empty() || below(10) < (growing ? 6u : 4u)) {
      const size_t most = below(50) == 0 ? 8 * kMiB : 256u << below(11);
      Block* block = take(memory, 1 + below(most), *streams[below(2)]);
      if (!block) continue;  // really full
      EXPECT_TRUE(model.add(block));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block->ptr) % 512, 0);
      EXPECT_TRUE(block->size >= block->requested);
      if (below(4) == 0) memory.record_stream(block, *streams[below(2)]);
      held.push_back(block);
    } else {
      std::swap(held[below(held.size())], held.back());
      model.remove(held.back());
      memory.free(held.back());
      held.pop_back();
    }
    if (below(2000) == 0) memory.empty_cache();
    if (below(500) == 0) expect_agreement(memory, model);
  }
  for (Block* block : held) {
    model.remove(block);
    memory.free(block);
  }

  expect_agreement(memory, model);
  EXPECT_EQ(memory.stats()["inactive_split.all.current"], 0);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

}  // namespace
}  // namespace npu
