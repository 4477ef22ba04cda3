// Which block serves a request, and what becomes of a block that is freed:
// sizes, splitting, merging, forks, sharing with other processes.
#include <sys/resource.h>

#include "csrc/driver/driver.h"
#include "csrc/memory/settings.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

// The rest of a block that was split has the same device and stream.
TEST(Reuse, GivesTheRestOfABlockAllThatTheBlockHad) {
  Memory memory({}, 1);
  Block* first = take(memory, 4096);
  Block* rest = take(memory, 4096);
  EXPECT_EQ(rest->ptr, static_cast<char*>(first->ptr) + 4096);
  for (const Block* block : {first, rest}) {
    EXPECT_EQ(block->device, 1);
    EXPECT_TRUE(block->stream == &first_stream());
  }
}

TEST(Reuse, GivesAFreedBlockToTheSameStreamAtOnce) {
  for (size_t bytes : {512ul, 1000ul, 1 * kMiB, 5 * kMiB, 30 * kMiB}) {
    Memory memory;
    void* address = take_and_free(memory, bytes);

    EXPECT_TRUE(take(memory, bytes)->ptr == address);
  }
}

TEST(Reuse, SizesSegmentsByTheRequest) {
  for (const auto& [bytes, segment] : {std::pair{size_t{1}, 2 * kMiB},
                                       {kMiB, 2 * kMiB},
                                       {kMiB + 1, 20 * kMiB},
                                       {10 * kMiB - 512, 20 * kMiB},
                                       {10 * kMiB, 10 * kMiB},
                                       {11 * kMiB, 12 * kMiB}}) {
    Memory memory;
    take(memory, bytes);
    EXPECT_EQ(memory.reserved(), segment);
  }
}

TEST(Reuse, SplitsALargeBlockOnlyWhenMoreThanOneMiBRemains) {
  Memory memory;
  memory.free(take(memory, 12 * kMiB));

  Block* whole = take(memory, 11 * kMiB);
  EXPECT_EQ(whole->size, 12 * kMiB);
  memory.free(whole);
  Block* part = take(memory, 11 * kMiB - 512);

  EXPECT_EQ(part->size, 11 * kMiB - 512);
  EXPECT_EQ(memory.reserved(), 12 * kMiB);
}

TEST(Reuse, PrefersTheSmallestBlockThatFits) {
  Memory memory;
  Block* big = take(memory, 30 * kMiB);
  Block* close = take(memory, 14 * kMiB);
  void* address = close->ptr;
  memory.free(big);
  memory.free(close);

  EXPECT_TRUE(take(memory, 13 * kMiB)->ptr == address);
}

TEST(Reuse, MergesSmallBlocksBeforeTheCacheGrows) {
  Memory memory;
  std::vector<Block*> blocks;
  for (size_t used = 0; used < 2 * kMiB; used += 512)
    blocks.push_back(take(memory, 512));
  EXPECT_EQ(memory.reserved(), 2 * kMiB);
  for (Block* block : blocks) memory.free(block);
  EXPECT_EQ(take(memory, kMiB)->size, kMiB);
  EXPECT_EQ(memory.reserved(), 2 * kMiB);
}

TEST(Reuse, FindsABlockInUseByItsFirstByteOnly) {
  Memory memory;
  Block* first = take(memory, 4096);
  Block* block = take(memory, 4096);

  EXPECT_TRUE(memory.find(block->ptr) == block);
  EXPECT_TRUE(memory.find(first->ptr) == first);
  EXPECT_TRUE(memory.find(static_cast<char*>(block->ptr) + 512) == nullptr);
  EXPECT_TRUE(memory.find(nullptr) == nullptr);
  EXPECT_TRUE(memory.find(&memory) == nullptr);
  memory.free(block);
  EXPECT_TRUE(memory.find(block->ptr) == nullptr);
}

TEST(Reuse, ThreadsNeverShareABlock) {
  Memory memory;
  on_threads(3, [&memory](int id) {
    Block* held[8] = {};
    for (int i = 0; i < 4000; ++i) {
      Block*& slot = held[(i * 5 + id) % 8];
      if (slot) {
        EXPECT_EQ(*static_cast<int*>(slot->ptr), id);
        memory.free(slot);
      }
      slot = take(memory, 512u << (i + id) % 5);
      *static_cast<int*>(slot->ptr) = id;
    }
    for (Block* block : held)
      if (block) memory.free(block);
  });
  EXPECT_EQ(memory.allocated(), 0);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

// While one exists, the process has only `room` bytes of address space left.
struct LittleRoom {
  explicit LittleRoom(size_t room) {
    getrlimit(RLIMIT_AS, &before);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit less = before;
    less.rlim_cur = pages * size_t(sysconf(_SC_PAGESIZE)) + room;
    setrlimit(RLIMIT_AS, &less);
  }
  ~LittleRoom() { setrlimit(RLIMIT_AS, &before); }
  rlimit before;
};

TEST(Edges, WhatTheDriverRefusedIsNotCountedAsHeld) {
  Memory memory;
  memory.free(take(memory, 512));
  {
    const LittleRoom room(50 * kMiB);
    EXPECT_TRUE(!take(memory, 100 * kMiB));
  }
  EXPECT_EQ(memory.stats()["num_ooms"], 1);
  EXPECT_TRUE(take(memory, 250 * kMiB) != nullptr);
}

TEST(Edges, MemoryIsOfAStreamAndNotOfItsNumber) {
  Stream twin(0, first_stream().id(), 0, StreamMode::kQueued);
  Memory memory;
  void* address = take_and_free(memory, 512);

  EXPECT_TRUE(take(memory, 512, twin)->ptr != address);
  EXPECT_TRUE(take(memory, 512)->ptr == address);
}

// Two threads that use a stream first at the same time get the same pools:
// memory that either gives back serves the other.
TEST(Edges, AStreamHasOnePoolWhoeverAsksFirst) {
  constexpr int kRounds = 400;
  CachingAllocator* shared = nullptr;
  std::atomic<int> begun{0}, ended{0};
  Block* theirs = nullptr;
  // Release and acquire: what either thread wrote before is seen by the other.
  std::jthread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load(std::memory_order_acquire) < round) {
      }
      theirs = take(*shared, 12 * kMiB);
      ended.store(round, std::memory_order_release);
    }
  });
  int grown = 0;
  for (int round = 1; round <= kRounds; ++round) {
    Memory memory;
    shared = &memory;
    begun.store(round, std::memory_order_release);
    Block* ours = take(memory, 12 * kMiB);
    while (ended.load(std::memory_order_acquire) < round)
      std::this_thread::yield();
    memory.free(ours);
    memory.free(theirs);
    const uint64_t reserved = memory.reserved();
    for (uint64_t taken = 0; taken < reserved; taken += 12 * kMiB)
      take(memory, 12 * kMiB);
    grown += memory.reserved() != reserved;
  }
  EXPECT_EQ(grown, 0);
}

TEST(Edges, ABlockOfExactlyTheMostThatIsSplitIsOversize) {
  set_allocator_settings({.max_split_size = 40 * kMiB});
  Memory memory;
  memory.free(take(memory, 38 * kMiB));
  auto s = memory.stats();
  EXPECT_EQ(s["max_split_size"], 40 * kMiB);
  EXPECT_EQ(s["oversize_allocations.allocated"], 0);
  EXPECT_EQ(s["oversize_segments.allocated"], 0);

  Block* block = take(memory, 40 * kMiB);
  s = memory.stats();
  EXPECT_EQ(s["oversize_allocations.current"], 1);
  EXPECT_EQ(s["oversize_segments.current"], 1);
  memory.free(block);
  EXPECT_EQ(memory.stats()["oversize_allocations.current"], 0);
  memory.empty_cache();
  EXPECT_EQ(memory.stats()["oversize_segments.current"], 0);

  // The block serves, whole, a request that is as large, and no smaller one.
  block = take(memory, 50 * kMiB);
  void* address = block->ptr;
  memory.free(block);
  Block* whole = take(memory, 40 * kMiB);
  EXPECT_TRUE(whole->ptr == address && whole->size == 50 * kMiB);
  memory.free(whole);
  EXPECT_TRUE(take(memory, 40 * kMiB - 512)->ptr != address);
  set_allocator_settings({});
}

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
  std::mt19937 random(seed());
  const auto below = [&](size_t n) { return random() % n; };
  Memory memory;
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

// AddressSanitizer's own malloc() hangs in a child that was forked while
// another thread was in it, as `busy` often is.
#ifndef __SANITIZE_ADDRESS__
TEST(Fork, LeavesTheChildsAllocatorUsableWhateverOtherThreadsDid) {
  Stream& stream = first_stream();
  const uint64_t before = allocator(0).allocated();
  Block* inherited = take(allocator(0), 4096, stream);
  std::atomic<bool> stop{false};
  std::jthread busy([&] {
    while (!stop) allocator(0).free(take(allocator(0), 1024, stream));
  });

  for (int i = 0; i < 10; ++i) {
    const Ended child = in_child([&]() -> int {
      // _exit(): a leak check in a child of a threaded process may wait for
      // the sanitizer's own locks for ever.
      const uint64_t held = allocator(0).allocated();
      allocator(0).free(inherited);
      if (allocator(0).allocated() != held) _exit(1);
      if (!take(allocator(0), 512, stream)) _exit(2);
      allocator(0).empty_cache();
      _exit(allocator(0).stats().empty() ? 3 : 0);
    });
    EXPECT_EQ(child.code, 0);
  }
  stop = true;
  busy.join();

  allocator(0).free(inherited);
  EXPECT_EQ(allocator(0).allocated(), before);
  EXPECT_TRUE(allocator_exists(0));
  EXPECT_TRUE(!allocator_exists(1));
}
#endif

// The thread that was ending the other's sole use does not exist in the child.
TEST(Fork, FreesALockThatAnotherThreadWasAboutToShare) {
  for (int i = 0; i < 20; ++i) {
    SoleLock lock;
    std::atomic<bool> begun{false};
    lock.lock();
    std::thread other([&] {
      begun = true;
      std::lock_guard held(lock);
    });
    while (!begun) std::this_thread::yield();
    for (int k = 0; k < 1000; ++k) std::this_thread::yield();
    const Ended child = in_child([&]() -> int {
      lock.unlock_in_child();
      lock.lock();
      lock.unlock();
      _exit(0);
    });
    lock.unlock();
    other.join();
    EXPECT_EQ(child.code, 0);
    if (child.code != 0) break;  // each takes as long as a test may
  }
}

TEST(Share, KeepsAddressesAndContentsOfTheWholeSegmentUntilItEnds) {
  Memory memory;
  Block* a = take(memory, 3 * kKiB);
  Block* b = take(memory, 5 * kKiB);
  Block* large = take(memory, 33 * kMiB);
  memset(a->ptr, 1, a->size);
  memset(b->ptr, 2, b->size);
  char& last = static_cast<char*>(large->ptr)[33 * kMiB - 1];
  last = 5;

  const auto shared = memory.share(b->ptr);
  const auto other = memory.share(large->ptr);

  EXPECT_TRUE(shared.handle >= 0);
  EXPECT_EQ(shared.why, "");
  EXPECT_EQ(memory.share(a->ptr).handle, shared.handle);  // once for all of it
  EXPECT_TRUE(other.handle >= 0 && other.handle != shared.handle);
  EXPECT_TRUE(memory.is_shared(a->ptr));
  EXPECT_EQ(static_cast<char*>(a->ptr)[a->size - 1], 1);
  EXPECT_EQ(static_cast<char*>(b->ptr)[0], 2);
  EXPECT_EQ(last, 5);
  auto* seen =
      static_cast<char*>(driver().segment_open(0, shared.handle, shared.bytes));
  EXPECT_EQ(memcmp(seen + shared.offset, b->ptr, b->size), 0);
  static_cast<char*>(a->ptr)[0] = 7;
  const size_t apart = static_cast<char*>(b->ptr) - static_cast<char*>(a->ptr);
  EXPECT_EQ(seen[shared.offset - apart], 7);
  seen[shared.offset] = 9;
  EXPECT_EQ(static_cast<char*>(b->ptr)[0], 9);

  driver().segment_free(0, seen, shared.bytes);
  for (Block* block : {a, b, large}) memory.free(block);
  EXPECT_TRUE(fcntl(shared.handle, F_GETFD) >= 0);
  memory.empty_cache();
  for (const int handle : {shared.handle, other.handle})
    EXPECT_EQ(fcntl(handle, F_GETFD), -1);
}

TEST(Share, SaysWhatItCannotShare) {
  Memory memory;
  int mine = 0;
  const auto shared = memory.share(&mine);
  EXPECT_EQ(shared.handle, -1);
  EXPECT_EQ(shared.why, "it is no memory of the caching allocator");
  EXPECT_TRUE(!memory.is_shared(&mine));
}

TEST(Share, OpensNothingThatCouldBecomeShorter) {
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(plain, 4096), 0);
  EXPECT_TRUE(driver().segment_open(0, plain, 4096) == nullptr);
  close(plain);

  Memory memory;
  Block* a = take(memory, kKiB);
  const auto shared = memory.share(a->ptr);
  EXPECT_EQ(ftruncate(shared.handle, 0), -1);
  EXPECT_TRUE(driver().segment_open(0, shared.handle, 2 * shared.bytes) ==
              nullptr);
  memory.free(a);
}

}  // namespace
}  // namespace npu
