// A block's segment becomes one that other processes can open, at the same
// address.
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "csrc/driver/registry.h"
#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using check::first_stream;
using check::kKiB;
using check::kMiB;
using check::make_allocator;
using check::take;

TEST(Share, KeepsAddressesAndContentsOfTheWholeSegment) {
  CachingAllocator memory = make_allocator();
  Block* a = take(memory, 3 * kKiB, first_stream());
  Block* b = take(memory, 5 * kKiB, first_stream());
  memset(a->ptr, 1, a->size);
  memset(b->ptr, 2, b->size);

  const auto shared = memory.share(b->ptr);

  EXPECT_TRUE(shared.handle >= 0);
  EXPECT_EQ(shared.why, "");
  EXPECT_TRUE(memory.is_shared(a->ptr));
  EXPECT_EQ(static_cast<char*>(a->ptr)[a->size - 1], 1);
  EXPECT_EQ(static_cast<char*>(b->ptr)[0], 2);
  auto* seen =
      static_cast<char*>(driver().segment_open(0, shared.handle, shared.bytes));
  EXPECT_EQ(memcmp(seen + shared.offset, b->ptr, b->size), 0);
  static_cast<char*>(a->ptr)[0] = 7;
  const size_t apart = static_cast<char*>(b->ptr) - static_cast<char*>(a->ptr);
  EXPECT_EQ(seen[shared.offset - apart], 7);
  seen[shared.offset] = 9;
  EXPECT_EQ(static_cast<char*>(b->ptr)[0], 9);

  driver().segment_free(0, seen, shared.bytes);
  memory.free(a);
  memory.free(b);
}

TEST(Share, IsDoneOnceForASegmentAndLargeOnesToo) {
  CachingAllocator memory = make_allocator();
  Block* small = take(memory, kKiB, first_stream());
  Block* large = take(memory, 33 * kMiB, first_stream());
  static_cast<char*>(large->ptr)[33 * kMiB - 1] = 5;

  const auto first = memory.share(small->ptr);
  const auto again = memory.share(small->ptr);
  const auto other = memory.share(large->ptr);

  EXPECT_EQ(first.handle, again.handle);
  EXPECT_TRUE(other.handle >= 0 && other.handle != first.handle);
  EXPECT_EQ(static_cast<char*>(large->ptr)[33 * kMiB - 1], 5);
  memory.free(small);
  memory.free(large);
}

TEST(Share, EndsWithTheSegment) {
  CachingAllocator memory = make_allocator();
  Block* a = take(memory, 30 * kMiB, first_stream());
  const int handle = memory.share(a->ptr).handle;
  EXPECT_TRUE(fcntl(handle, F_GETFD) >= 0);
  memory.free(a);

  memory.empty_cache();

  EXPECT_EQ(fcntl(handle, F_GETFD), -1);
}

TEST(Share, SaysWhatItCannotShare) {
  CachingAllocator memory = make_allocator();
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

  CachingAllocator memory = make_allocator();
  Block* a = take(memory, kKiB, first_stream());
  const auto shared = memory.share(a->ptr);
  EXPECT_EQ(ftruncate(shared.handle, 0), -1);
  EXPECT_TRUE(driver().segment_open(0, shared.handle, 2 * shared.bytes) ==
              nullptr);
  memory.free(a);
}

}  // namespace
}  // namespace npu
