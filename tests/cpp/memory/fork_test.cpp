#include <atomic>
#include <mutex>
#include <thread>

#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

// AddressSanitizer's own malloc() hangs in a child that was forked while
// another thread was in it, as `busy` often is.
#ifndef __SANITIZE_ADDRESS__
TEST(Fork, LeavesTheChildsAllocatorUsableWhateverOtherThreadsDid) {
  Stream& stream = first_stream();
  Block* inherited = take(allocator(0), 4096, stream);
  std::atomic<bool> stop{false};
  std::jthread busy([&] {
    while (!stop) allocator(0).free(take(allocator(0), 1024, stream));
  });

  for (int i = 0; i < 10; ++i) {
    const Ended child = in_child([&]() -> int {
      // _exit(): a leak check in a child of a threaded process may wait for
      // the sanitizer's own locks for ever.
      const uint64_t before = allocator(0).allocated();
      allocator(0).free(inherited);
      if (allocator(0).allocated() != before) _exit(1);
      if (!take(allocator(0), 512, stream)) _exit(2);
      allocator(0).empty_cache();
      _exit(allocator(0).stats().empty() ? 3 : 0);
    });
    EXPECT_EQ(child.code, 0);
  }
  stop = true;
  busy.join();

  allocator(0).free(inherited);
  EXPECT_EQ(allocator(0).allocated(), 0);
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

}  // namespace
}  // namespace npu
