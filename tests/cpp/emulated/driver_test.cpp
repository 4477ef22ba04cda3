// What the emulated driver's table promises beyond tests/cpp/driver. Each case
// has a process of its own, because NPU_EMULATED is read once.
#include <stdlib.h>

#include <atomic>

#include "csrc/driver/driver.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/no_threads.h"

namespace npu {
namespace {

// Whether the body returns true.
template <typename Body>
bool with(const char* spec, Body body) {
  return in_child([&] {
           setenv("NPU_EMULATED", spec, 1);
           return int(body(emulated_driver()));
         }).code == 1;
}

struct Reports {
  std::atomic<uint64_t> last{0};
  npu_reports table{&last,
                    [](void* last, uint64_t number) {
                      static_cast<std::atomic<uint64_t>*>(last)->store(
                          number, std::memory_order_release);
                    },
                    nullptr, nullptr};
};

TEST(EmulatedDriver, ASegmentOfAnotherProcessIsNotCountedWhenItIsFreed) {
  const bool refused = with("memory=1e6", [](const npu_driver& d) {
    constexpr size_t kBytes = 800'000;
    void* const other = host_driver().segment_alloc(0, kBytes);
    const int handle = host_driver().segment_share(0, other, kBytes);
    void* const opened = d.segment_open(0, handle, kBytes);
    void* const own = d.segment_alloc(0, kBytes);
    if (!opened || !own) return false;
    d.segment_free(0, opened, kBytes);
    return d.segment_alloc(0, kBytes) == nullptr;
  });
  EXPECT_TRUE(refused);
}

TEST(EmulatedDriver, KnowsTheTimesOfAsManyTasksAsItTakes) {
  const bool known = with("queue_room=65536", [](const npu_driver& d) {
    constexpr uint64_t kTasks = 10'000;
    Reports reports;
    const npu_queue queue = d.queue_create(0, 0, &reports.table);
    const npu_kernel sleep{nullptr, "npu::_sleep", nullptr, 0};
    const uint64_t first = 100'000'000, others = 0;  // ns
    for (uint64_t i = 1; i <= kTasks; ++i)
      if (d.submit(queue, i, &sleep, i == 1 ? &first : &others, nullptr))
        return false;
    while (reports.last.load(std::memory_order_acquire) < kTasks) {
    }
    uint64_t begun, ended;
    return d.task_times(queue, 1, &begun, &ended) && ended - begun >= first;
  });
  EXPECT_TRUE(known);
}

TEST(EmulatedDriver, HasNoQueueWhereThereIsNoThreadForIt) {
  const bool null = with("", [](const npu_driver& d) {
    Reports reports;
    {
      const check::NoThreads none;
      if (d.queue_create(0, 0, &reports.table)) return false;
    }
    return d.queue_create(0, 0, &reports.table) != nullptr;
  });
  EXPECT_TRUE(null);
}

}  // namespace
}  // namespace npu
